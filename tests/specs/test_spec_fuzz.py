"""Whatever is done to a valid spec, the answer is a spec or findings with places."""

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_texts import VALID

from kvc.diagnostics import KvcError
from kvc.specs import load_spec_text

_FULL = (
    VALID
    + """\
memory: {device: 139GiB, free_fraction: 0.9, reserve: 1GB}
attention: {context: act}
compile: {require: [fuse_append]}
"""
)
_PIECES = [
    "\n",
    " ",
    "  ",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "&a ",
    "*a",
    "<<",
    "!!x ",
    "#",
    "\t",
    "|",
    ">",
    "?",
    "%",
]
_PIECES += [
    "no",
    "1e3",
    "-1",
    "0",
    "null",
    "9" * 30,
    "é",
    "\x00",
    "kind",
    "gqa",
    "group",
    "none",
    "repeat",
    "---\n",
    "1.5",
]
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False)
    | st.sampled_from(["gqa", "mla", "none", "fp8", "unit", "values", "yarn", "64", "0-1", "", "1GB", "sm_90"])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "source", "layers", "repeat", "values", "k", "v", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


def answer(text: str) -> None:
    """Load a text; findings, if any, are complete and in order."""
    try:
        load_spec_text(text, "fuzz.yaml")
    except KvcError as error:
        places = [(found.source.line, found.source.column) for found in error.diagnostics if found.source]
        assert len(places) == len(error.diagnostics) > 0
        assert places == sorted(places)
        for found in error.diagnostics:
            assert found.code and found.message and found.help, found
            assert "Input should" not in found.message


@given(st.lists(st.tuples(st.integers(0, len(_FULL)), st.integers(0, 12), st.sampled_from(["", *_PIECES])), max_size=4))
@settings(max_examples=200, deadline=None)
def test_edited_text(edits: list[tuple[int, int, str]]) -> None:
    text = _FULL
    for at, length, new in edits:
        text = text[:at] + new + text[at + length :]
    answer(text)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(below for key, child in items for below in _paths(child, (*path, key)))]


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


_TREE = yaml.safe_load(_FULL)
_TREE["cache"]["overrides"] = [{"layers": "0-1", "encoding": "bf16"}]


@given(st.sampled_from(_paths(_TREE)), _VALUES, st.sampled_from(_paths(_TREE)), _VALUES)
@settings(max_examples=200, deadline=None)
def test_edited_values(path: tuple[Any, ...], new: Any, other: tuple[Any, ...], newer: Any) -> None:
    tree = _replaced(_TREE, path, new)
    if other[: len(path)] != path:
        tree = _replaced(tree, other, newer)
    answer(yaml.safe_dump(tree, allow_unicode=True))
