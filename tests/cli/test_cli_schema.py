"""`kvc schema`, and the schema itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvc.cli import schema as command
from kvc.specs import schema

Run = Callable[..., tuple[int, str, str]]


def test_the_committed_schema_is_current(run_kvc: Run) -> None:
    assert run_kvc("schema", "--check") == (0, "", "")


def test_a_stale_schema_is_reported_and_rewritten(
    run_kvc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kvc.schema.json"
    monkeypatch.setattr(command, "SCHEMA_FILE", file)
    assert run_kvc("schema", "--check") == (1, "", "kvc.schema.json is not current: run `kvc schema --write`\n")
    assert run_kvc("schema", "--write") == (0, "", "")
    assert run_kvc("schema", "--check")[0] == 0
    assert run_kvc("schema") == (0, file.read_text(), "")
    assert run_kvc("schema", "--check", "--write")[0] == 2


def nodes(value: Any) -> list[Any]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(below for child in children for below in nodes(child))]


def test_editors_get_closed_objects_choices_and_no_tuples() -> None:
    whole = json.loads(schema.schema_text())
    objects = [node for node in nodes(whole) if isinstance(node, dict) and node.get("type") == "object"]
    assert len(objects) > 15 and all(node["additionalProperties"] is False for node in objects)
    assert not [node for node in nodes(whole) if isinstance(node, dict) and "prefixItems" in node]
    assert whole["$defs"]["Cache"]["properties"]["encoding"]["enum"] == ["fp32", "bf16", "fp8"]
    assert whole["required"] == ["kvc", "name", "model", "cache", "target"]
