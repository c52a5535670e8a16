"""Whatever becomes of a config: findings, or a spec that loads. Never a traceback."""

import copy
import json
from typing import Any

import pytest
from config_files import FILES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvc.diagnostics import KvcError
from kvc.plan import make_plan
from kvc.specs import load_spec_text
from kvc.specs.hf.importing import spec_from_config

CONFIGS = [json.loads(path.read_text()) for path in FILES]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, 1, -1, 2, 3, 7, 64, 2**31, 10**30, 0.0, 0.5, -1.5, 1e308, "", "auto", "default", "sliding_attention"]
    ),
    st.sampled_from(
        [[], {}, [0], ["full_attention"], {"rope_type": "yarn"}, {"type": "linear", "factor": 2}, [[1]], {"a": {}}]
    ),
    st.text(max_size=8),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a config; of a list its first entries."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [place for inner in value.values() for place in places(inner)]
    if isinstance(value, list):
        return [(value, index) for index in range(min(2, len(value)))]
    return []


@st.composite
def mutants(draw: st.DrawFn) -> Any:
    config = copy.deepcopy(draw(st.sampled_from(CONFIGS)))
    for _ in range(draw(st.integers(1, 3))):
        found = places(config)
        if not found:
            break
        container, key = draw(st.sampled_from(found))
        change = draw(st.sampled_from(["delete", "replace", "rename"]))
        if change == "replace" or isinstance(container, list):
            container[key] = copy.deepcopy(draw(ODD))
        else:
            value = container.pop(key)
            if change == "rename":
                container[draw(st.text(max_size=6))] = value
    return config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("mutants")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutants())
def test_findings_or_a_spec(folder: Any, config: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    try:
        text = spec_from_config(path)
    except KvcError as error:
        assert all(found.message and found.code.startswith("KVC") for found in error.diagnostics)
        return
    make_plan(load_spec_text(text))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(folder: Any, data: bytes) -> None:
    path = folder / "config.json"
    path.write_bytes(data)
    with pytest.raises(KvcError):
        spec_from_config(path)
