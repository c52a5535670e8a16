"""The configs of tests/data, and short ways to import changed ones."""

import json
from pathlib import Path
from typing import Any

from kvc.diagnostics import Diagnostic, KvcError
from kvc.plan import make_plan
from kvc.plan.types import Plan
from kvc.specs import load_spec_text
from kvc.specs.hf.importing import ImportOptions, spec_from_config

FOLDER = Path(__file__).parents[2] / "data" / "hf_configs"
FILES = sorted(FOLDER.glob("*/*.json"))


def values(name: str) -> dict[str, Any]:
    """Fields of `hub/llama-3.1-8b`."""
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return loaded


def plan_of(path: Path, **options: Any) -> Plan:
    """The plan of an imported config."""
    return make_plan(load_spec_text(spec_from_config(path, ImportOptions(**options))))


def saved(folder: Path, config: Any) -> Path:
    """A config.json in ``folder``."""
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return path


def imported(folder: Path, config: Any, **options: Any) -> str:
    """The spec's text for changed fields."""
    return spec_from_config(saved(folder, config), ImportOptions(**options))


def findings(folder: Path, config: Any, **options: Any) -> list[Diagnostic]:
    """What is wrong with a config; empty where nothing is."""
    try:
        imported(folder, config, **options)
    except KvcError as error:
        return list(error.diagnostics)
    return []
