"""The JSON Schema of spec files, for editors; the committed copy is what yaml-language-server reads."""

import json
from pathlib import Path

from kvc.specs.models import Spec

SCHEMA_FILE = Path(__file__).parent / "schema" / "kvc.schema.json"


def schema_text() -> str:
    """The schema as the file's text."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Spec.model_json_schema()}
    return json.dumps(schema, indent=1) + "\n"
