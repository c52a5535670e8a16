"""A spec as commented YAML, each part with the fields of the config it follows from."""

import math
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from kvc.specs.hf.config import Derived
from kvc.specs.hf.repeats import Group, Run, folded

WIDTH = 110  # columns of a line


def scalar(value: Any) -> str:
    """A number, truth value or plain word as YAML that every reader takes alike."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    if value == math.floor(value) and value < 1e15:
        return str(int(value))
    mantissa, mark, exponent = repr(value).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{mark}{exponent}"


def flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {flow(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def comment(text: str, indent: int = 0) -> list[str]:
    """Text as comment lines."""
    prefix = " " * indent + "# "
    return textwrap.wrap(text, WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_long_words=False)


def fields(values: dict[str, Any], indent: int) -> Iterator[str]:
    """A mapping, each field on a line of its own where that is short enough."""
    space = " " * indent
    for name, value in values.items():
        line = f"{space}{name}: {flow(value)}"
        if isinstance(value, dict) and len(line) > WIDTH:
            yield f"{space}{name}:"
            yield from fields(value, indent + 2)
        else:
            yield line


def about(derived: Derived, indent: int) -> list[str]:
    """What a part follows from, and its notes."""
    lines = comment("from " + ", ".join(derived.fields), indent) if derived.fields else []
    return [*lines, *(line for note in derived.notes for line in comment(note, indent))]


def _entry(values: dict[str, Any], indent: int) -> Iterator[str]:
    """An item of a list."""
    lines = list(fields(values, indent + 2))
    yield f"{' ' * indent}- {lines[0].lstrip()}"
    yield from lines[1:]


class _Layers:
    """Writes layers; what is said above one is not said again."""

    def __init__(self) -> None:
        self._said: set[tuple[str, ...]] = set()

    def run(self, run: Run, indent: int) -> Iterator[str]:
        above = about(run.layer, indent)
        said = tuple(line.strip() for line in above)
        if said not in self._said:
            self._said.add(said)
            yield from above
        yield from _entry(_with_repeat(run.layer.value, run.count), indent)

    def group(self, group: Group, indent: int) -> Iterator[str]:
        space = " " * indent
        yield f"{space}- repeat: {group.count}"
        yield f"{space}  layers:"
        for run in group.runs:
            yield from self.run(run, indent + 4)


def _with_repeat(layer: dict[str, Any], count: int) -> dict[str, Any]:
    """The layer with its `repeat`, behind what it is."""
    if count == 1:
        return layer
    first: dict[str, Any] = {name: layer[name] for name in ("kind", "variant") if name in layer}
    return {**first, "repeat": count, **layer}


def layers(derived: Iterable[Derived], indent: int) -> Iterator[str]:
    """All layers in order, equal ones written once."""
    writer = _Layers()
    for entry in folded(list(derived)):
        yield from writer.group(entry, indent) if isinstance(entry, Group) else writer.run(entry, indent)
