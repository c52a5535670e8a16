"""A YAML document as a tree that remembers where everything was written."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kvc.diagnostics import Source

Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Scalar:
    """A single value; ``quoted`` says that it was written in quotes, ``text`` is what stands in the file."""

    source: Source
    value: Any
    text: str
    quoted: bool
    size: int = 1

    def plain(self) -> Any:
        """The value."""
        return self.value


@dataclass(frozen=True)
class Sequence:
    """A list of nodes; ``size`` counts all nodes below, those behind an alias every time."""

    source: Source
    items: list["Node"] = field(default_factory=list)
    size: int = 1

    def plain(self) -> list[Any]:
        """The values as a list."""
        return [item.plain() for item in self.items]


@dataclass(frozen=True)
class Mapping:
    """Named nodes; ``keys`` are the places of the names."""

    source: Source
    fields: dict[str, "Node"] = field(default_factory=dict)
    keys: dict[str, Source] = field(default_factory=dict)
    size: int = 1

    def plain(self) -> dict[str, Any]:
        """The values as a dictionary."""
        return {key: node.plain() for key, node in self.fields.items()}


Node = Scalar | Sequence | Mapping


def _child(node: Node, part: str | int) -> Node | None:
    if isinstance(node, Mapping) and isinstance(part, str):
        return node.fields.get(part)
    if isinstance(node, Sequence) and isinstance(part, int) and 0 <= part < len(node.items):
        return node.items[part]
    return None


def _steps(root: Node, loc: Iterable[str | int]) -> Iterator[tuple[Source, str | int, Node]]:
    """Follow ``loc`` as far as the document goes; parts that are no child (pydantic's union tags) are skipped."""
    node, place = root, root.source
    for part in loc:
        child = _child(node, part)
        if child is None:
            continue
        place = node.keys[str(part)] if isinstance(node, Mapping) else child.source
        node = child
        yield place, part, node


def find(root: Node, loc: Iterable[str | int]) -> Node:
    """The node at ``loc``, or the deepest one on the way to it."""
    return [root, *(node for _, _, node in _steps(root, loc))][-1]


def key_source(root: Node, loc: Iterable[str | int]) -> Source:
    """Where the key of the node at ``loc`` is written (list items: the item); its nearest parent's if it is absent."""
    return [root.source, *(source for source, _, _ in _steps(root, loc))][-1]


def place(root: Node, loc: Iterable[str | int]) -> Source:
    """Where a finding about ``loc`` points: at a value, at the key of a mapping or list, or at the nearest parent."""
    parts = tuple(loc)
    node = find(root, parts)
    is_value = isinstance(node, Scalar) and node.value is not None
    return node.source if is_value else key_source(root, parts)


def document_path(root: Node, loc: Iterable[str | int]) -> str:
    """``loc`` as an engineer writes it: `model.layers[0].heads`, without union tags."""
    text = ""
    for _, part, _ in _steps(root, loc):
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")
