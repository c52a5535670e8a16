"""A spec file read into a tree with positions; everything that YAML would do behind the author's back is refused.

PyYAML's event stream is composed here, not by PyYAML: no object is ever built, an alias cannot multiply beyond
`MAX_NODES`, and the depth of recursion is bounded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from kvc.diagnostics import Diagnostic, KvcError, Source, fail
from kvc.specs.nodes import Mapping, Node, Scalar, Sequence
from kvc.specs.scalars import plain_value, trap_of
from kvc.specs.suggestions import MAX_SHOWN, shortened

MAX_BYTES = 1 << 20
MAX_NODES = 100_000
MAX_DEPTH = 64

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
# A part of the parser's message -> what usually helps.
_SYNTAX_HELP = {
    "cannot start any token": "indent with spaces, not tabs; quote text that starts with @, ` or %",
    "tab": "indent with spaces, not tabs",
    "mapping values are not allowed": "a `:` stands in a value: quote it, or check the indentation of this line",
    "could not find expected ':'": "every line of a mapping is `key: value`",
    "flow": "a bracket, brace or comma is missing",
    "expected <block end>": "this line is indented unlike the ones above it",
    "did not find expected key": "this line is indented unlike the ones above it, or a quote is missing",
    "<document start>": "this line is indented unlike the ones above it",
    "": "check the punctuation and the indentation of this line and the one above",
}


@dataclass(frozen=True)
class Document:
    """A spec file as read: its ``root`` and the ``findings`` that did not stop the reader."""

    path: str
    root: Mapping
    findings: tuple[Diagnostic, ...]


def read_document(file: Path, shown_as: str | None = None) -> Document:
    """Read ``file``; positions cite it as ``shown_as``. Raises KvcError (KVC002 to KVC022) where there is no tree."""
    path = str(file) if shown_as is None else shown_as
    return parse_document(_decode(_read_bytes(file, path), path), path)


def parse_document(text: str, path: str) -> Document:
    """Like `read_document` for text that was read already."""
    _refuse_control_characters(text, path)
    composer = _Composer(text, path)
    try:
        root = composer.document()
    except yaml.YAMLError as error:
        raise _syntax_error(error, path, len(text.rstrip())) from None
    if not isinstance(root, Mapping):
        raise fail("KVC022", "a spec is a mapping of fields", source=root.source, help="start with `kvc: 1`")
    return Document(path, root, tuple(composer.findings))


def _read_bytes(file: Path, path: str) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise fail("KVC002", "this is a directory", source=Source(path), help="name the spec file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("KVC002", f"cannot read the file: {reason}", source=Source(path)) from None
    if len(data) > MAX_BYTES:
        help = "write equal layers once, with `repeat`; is this a spec at all?"
        raise fail("KVC004", f"the file is larger than {MAX_BYTES:,} bytes", source=Source(path), help=help)
    return data


def _place(before: str, path: str) -> Source:
    """The position just behind ``before``."""
    return Source(path, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        source = _place(data[: error.start].decode("utf-8", "replace"), path)
        message = f"the file is not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise fail("KVC003", message, source=source, help="save it as UTF-8; is this a spec at all?") from None


def _refuse_control_characters(text: str, path: str) -> None:
    if found := _NOT_TEXT.search(text):
        message = f"the file is not text (character U+{ord(found[0]):04X})"
        raise fail("KVC003", message, source=_place(text[: found.start()], path), help="is this a spec at all?")


def _syntax_error(error: yaml.YAMLError, path: str, length: int) -> KvcError:
    mark = getattr(error, "problem_mark", None)
    if mark and mark.index >= length:  # the end of the file: what was left open is the place to look at
        mark = getattr(error, "context_mark", None) or mark
    problem = getattr(error, "problem", None) or str(error)
    source = Source(path, mark.line + 1, mark.column + 1) if mark else Source(path)
    said = f"{problem} {getattr(error, 'context', '')}"
    help = next(text for part, text in _SYNTAX_HELP.items() if part in said)
    if "nesting depth" in problem:  # libyaml's own limit, met while it reads ahead
        return _too_deep(source)
    return fail("KVC005", f"malformed YAML: {problem}", source=source, help=help)


def _too_deep(source: Source) -> KvcError:
    return fail("KVC012", f"nested deeper than {MAX_DEPTH}", source=source, help="an unclosed bracket?")


class _Composer:
    """Turns the parser's events into nodes and collects findings on the way."""

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.findings: list[Diagnostic] = []
        self._events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
        self._anchors: dict[str, Node] = {}
        self._nodes = 0

    def document(self) -> Node:
        """The only document of the stream."""
        next(self._events)  # StreamStart
        if isinstance(event := next(self._events), yaml.StreamEndEvent):
            raise fail("KVC006", "the file holds no spec", source=Source(self.path), help="start with `kvc: 1`")
        root = self._node(next(self._events), 0)
        next(self._events)  # DocumentEnd
        if not isinstance(event := next(self._events), yaml.StreamEndEvent):
            source = self._source(event)
            raise fail("KVC007", "a second document starts here", source=source, help="put each spec into its own file")
        return root

    def _source(self, event: Any) -> Source:
        return Source(self.path, event.start_mark.line + 1, event.start_mark.column + 1)

    def _report(self, code: str, message: str, source: Source, help: str) -> None:
        self.findings.append(Diagnostic(code, message, source, help=help))

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if depth > MAX_DEPTH:
            raise _too_deep(self._source(event))
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._report("KVC009", f"the tag `{shortened(tag)}` is not allowed", self._source(event), "remove the tag")
        self._count(1, event)
        node = self._compose(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _compose(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(self._source(event), depth)
        return self._mapping(self._source(event), depth)

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            help = "define the anchor (&name) before its alias (*name), and not around it"
            message = f"the alias `*{event.anchor}` has no anchor above it"
            raise fail("KVC005", message, source=self._source(event), help=help)
        self._count(self._anchors[event.anchor].size, event)
        return self._anchors[event.anchor]

    def _count(self, nodes: int, event: Any) -> None:
        """Count nodes as they come, so that a bomb is stopped before it is built."""
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            help = "write equal layers once, with `repeat`, and use fewer aliases"
            raise fail("KVC004", f"more than {MAX_NODES:,} values", source=self._source(event), help=help)

    def _scalar(self, event: Any) -> Scalar:
        source, text = self._source(event), event.value
        if event.style:  # quotes or a block; None or empty where plain
            return Scalar(source, text, text, quoted=True)
        if trap := trap_of(text):
            help = trap.instead(text) if len(text) <= MAX_SHOWN else "quote it if it is text"
            self._report("KVC011", f"`{shortened(text)}` {trap.surprise}", source, help)
            return Scalar(source, text, text, quoted=False)
        return Scalar(source, plain_value(text), text, quoted=False)

    def _sequence(self, source: Source, depth: int) -> Sequence:
        items, size = [], 1
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
            size += items[-1].size
        return Sequence(source, items, size)

    def _mapping(self, source: Source, depth: int) -> Mapping:
        mapping, size = Mapping(source), 1
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            place, key = self._source(event), self._key(event, depth)
            node = self._node(next(self._events), depth + 1)
            size += 1 + node.size
            if key is None:
                continue
            if key in mapping.fields:
                help = f"keep one of the two; the first is in line {mapping.keys[key].line}"
                self._report("KVC008", f"`{shortened(key)}` is given twice", place, help)
                continue
            mapping.fields[key], mapping.keys[key] = node, place
        return replace(mapping, size=size)

    def _key(self, event: Any, depth: int) -> str | None:
        """The name of a field; None, with a finding, where the key is something else."""
        found = len(self.findings)
        node = self._node(event, depth + 1)
        if isinstance(node, Scalar) and node.value == "<<" and not node.quoted:
            self._report("KVC010", "merge keys (`<<`) are not allowed", node.source, "write the fields out")
            return None
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value if len(self.findings) == found else None
        shown = f"`{shortened(node.text)}`" if isinstance(node, Scalar) else "a list or mapping"
        help = 'a list of layers needs quotes: layers: "0-2,30"' if isinstance(node, Scalar) else "a key is one word"
        self._report("KVC013", f"a key must be a name, not {shown}", self._source(event), help)
        return None
