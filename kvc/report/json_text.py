"""JSON that people can read and `grep`: one line a field, and one a row of a list."""

import json
from collections.abc import Mapping
from typing import Any


def json_text(data: Mapping[str, Any]) -> str:
    """``data`` as JSON, without a final newline."""
    fields = (f"  {_line(name)}: {_rows(value)}" for name, value in data.items())
    return "{\n" + ",\n".join(fields) + "\n}"


def _rows(value: Any) -> str:
    if not (isinstance(value, list) and any(isinstance(row, dict) for row in value)):
        return _line(value)
    return "[\n" + ",\n".join(f"    {_line(row)}" for row in value) + "\n  ]"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
