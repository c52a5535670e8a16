"""Canonical text of a graph: the durable form in golden files, diffs, errors and artifacts.

One call a line, results numbered in program order, attributes sorted, dimensions by name, the chosen kernel after `@`,
the spec line last as a comment. ``parse_graph`` gives a graph that prints the same text.
"""

import operator
import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from kvc.diagnostics import KvcError, Source, fail
from kvc.graphs.builder import GraphBuilder
from kvc.graphs.graph import CODES, Graph, op_name, qualified_name, result_values
from kvc.graphs.symbols import DTYPE_NAMES, DTYPES

_BARE = re.compile(r"[A-Za-z_][\w.-]*")
_WORDS = {"none": None, "true": True, "false": False}


# ---- printing ----------------------------------------------------------------------------------------------------


def print_graph(graph: Graph, comments: bool = True) -> str:
    """The canonical text; ``comments=False`` leaves the provenance out, as comparisons do."""
    lines = node_lines(graph, comments)
    printed = (f"  {line}" for node, line in lines.items() if node.target is not operator.getitem)
    return "\n".join((f"graph {graph.name}", *printed)) + "\n"


def node_lines(graph: Graph, comments: bool = True) -> dict[torch.fx.Node, str]:
    """The line of the canonical text that holds each node, without indentation; errors and misses cite it."""
    numbers = _Numbers()
    lines: dict[torch.fx.Node, str] = {}
    for node in graph.fx.nodes:
        if node.target is operator.getitem:
            lines[node] = lines.get(node.args[0], "")  # type: ignore[arg-type]
            continue
        line = _node_line(graph, node, numbers)
        source = node.meta.get("source") if comments else ""
        lines[node] = f"{line}  # {source}" if source else line
    return lines


class _Numbers(dict[tuple[torch.fx.Node, int], int]):
    """(call, result index) -> number."""

    def define(self, node: torch.fx.Node, index: int) -> str:
        self[node, index] = len(self)
        return f"%{self[node, index]}"

    def use(self, node: torch.fx.Node) -> str:
        """The value's number; `%?` in a broken graph that uses a value before it is defined."""
        call, index = node.args if node.target is operator.getitem else (node, 0)
        number = self.get((call, index))  # type: ignore[arg-type]
        return "%?" if number is None else f"%{number}"


def value_names(graph: Graph) -> dict[tuple[torch.fx.Node, int], str]:
    """The number that each result of a call has in the canonical text (`%12`), taken or not; placeholders too."""
    numbers = _Numbers()
    defining = (node for node in graph.fx.nodes if node.op != "output" and node.target is not operator.getitem)
    return {(node, i): numbers.define(node, i) for node in defining for i in range(len(result_values(node)))}


def _node_line(graph: Graph, node: torch.fx.Node, numbers: _Numbers) -> str:
    if node.op == "output":
        outputs = ", ".join(f"{name}={numbers.use(value)}" for name, value in graph.outputs.items())
        return f"return {outputs}" if outputs else "return"
    right = _placeholder_text(node) if node.op == "placeholder" else _call_text(node, numbers)
    left = ", ".join(
        f"{numbers.define(node, index)}: {graph.symbols.type_text(value)}"
        for index, value in enumerate(result_values(node))
    )
    return f"{left} = {right}" if left else right


def _placeholder_text(node: torch.fx.Node) -> str:
    accepts = node.meta.get("accepts")
    return qualified_name(node) + (f" {{accepts={_attribute_text(accepts)}}}" if accepts else "")


def _call_text(node: torch.fx.Node, numbers: _Numbers) -> str:
    arguments = ", ".join(_argument_text(argument, numbers) for argument in node.args)
    attributes = ", ".join(f"{key}={_attribute_text(node.kwargs[key])}" for key in sorted(node.kwargs))
    kernel = f" @{node.meta['kernel']}" if node.meta.get("kernel") else ""
    return f"{op_name(node.target)}({arguments})" + (f" {{{attributes}}}" if attributes else "") + kernel


def _argument_text(argument: Any, numbers: _Numbers) -> str:
    if isinstance(argument, list | tuple):
        return "[" + ", ".join(_argument_text(item, numbers) for item in argument) + "]"
    return "none" if argument is None else numbers.use(argument)


def _attribute_text(value: Any) -> str:
    match value:
        case None | True | False:
            return str(value).lower()
        case torch.dtype():
            return f"torch.{DTYPE_NAMES[value]}"
        case int() | float():
            return repr(value)
        case str():
            if not _is_read_as_string(value):
                raise ValueError(f"attribute {value!r} has no text form")
            return value
        case list() | tuple():
            return "[" + ", ".join(_attribute_text(item) for item in value) + "]"
    raise ValueError(f"attribute {value!r} has no text form")


# ---- parsing -----------------------------------------------------------------------------------------------------

_HEADER = re.compile(r"graph ([\w.-]+)")
_LINE = re.compile(
    r"(?:(?P<left>%[0-9]+: .*?) = )?(?P<op>[a-z_]+\.[\w.]+)(?:\((?P<args>[^()]*)\))?"
    r"(?: \{(?P<attributes>.*)\})?(?: @(?P<kernel>\w+))?"
)
_RESULT = re.compile(r"%([0-9]+): (\w+)\[([^\]]*)\]")
_RETURN = re.compile(r"return(?: (.*))?")
_MAX_DIGITS = 9  # of the number of a value
_VALUE = re.compile(rf"%([0-9]{{1,{_MAX_DIGITS}}})")
_ATTRIBUTE = re.compile(r"(\w+)=(\[[^\]]*\]|[^,\[\]]+)")
_ATTRIBUTES = re.compile(rf"({_ATTRIBUTE.pattern}(, {_ATTRIBUTE.pattern})*)?")
_TOKEN = re.compile(r"\[|\]|[^\s,\[\]]+")


def parse_graph(text: str, path: str = "<text>") -> Graph:
    """Rebuild the graph that printed ``text``; results are inferred again and compared with the printed types.

    Raises KvcError KVC302 with the line for text that is not a graph, KVC303 where a result's type differs.
    """
    return _Parser(path).parse(text)


class _Parser:
    def __init__(self, path: str) -> None:
        self.path = path
        self.line = 0
        self.values: dict[int, torch.fx.Node] = {}

    def parse(self, text: str) -> Graph:
        rows = enumerate(text.splitlines(), start=1)
        for self.line, row in rows:
            if row.strip():
                break
        else:
            raise self.error("the text is empty")
        header = _HEADER.fullmatch(row)
        if not header:
            raise self.error("expected 'graph NAME'")
        self.builder = GraphBuilder(header[1])
        for self.line, row in rows:
            statement, _, source = row.strip().partition("  # ")
            finished = self.statement(statement, source) if statement else None
            if finished:
                self.end(rows)
                return finished
        raise self.error("the graph has no return line: the text is cut off")

    def end(self, rows: Iterator[tuple[int, str]]) -> None:
        for self.line, row in rows:
            if row.strip():
                raise self.error(f"nothing may follow the return line: {row.strip()[:80]}")

    def error(self, message: str, code: str = "KVC302") -> KvcError:
        return fail(code, message, source=Source(self.path, max(self.line, 1)))

    def statement(self, statement: str, source: str) -> Graph | None:
        returned = _RETURN.fullmatch(statement)
        if returned:
            return self.builder.finish(self.outputs(returned[1]))
        match = _LINE.fullmatch(statement)
        if not match:
            raise self.error(f"not a statement: {statement[:80]}")
        results = _RESULT.findall(match["left"] or "")
        if match["args"] is None:
            self.placeholder(match, results)
        else:
            self.call(match, results, source)
        return None

    def outputs(self, text: str | None) -> dict[str, torch.fx.Node]:
        found: dict[str, torch.fx.Node] = {}
        for pair in text.split(", ") if text else ():
            name, equals, reference = pair.partition("=")
            if not (equals and name.isidentifier()) or name in found:
                raise self.error(f"not an output of its own: {pair[:80]}")
            found[name] = self.defined(reference)
        return found

    def placeholder(self, match: re.Match[str], results: list[tuple[str, str, str]]) -> None:
        qualified = match["op"]
        role, _, name = qualified.partition(".")
        if len(results) != 1 or results[0][1] not in DTYPES:
            raise self.error(f"placeholder {qualified} needs one result of a known dtype")
        number, dtype, shape = results[0]
        sizes = tuple(part.strip() for part in shape.split(",")) if shape else ()
        try:
            made = self.builder.placeholder(role, name, DTYPES[dtype], sizes)
        except SyntaxError as error:
            raise self.error(f"not a shape: [{shape[:80]}]") from error
        except ValueError as error:
            raise self.error(str(error)) from error
        if match["attributes"] is not None:
            made.meta["accepts"] = self.accepts(role, match["attributes"])
        self.number(number, made)

    def accepts(self, role: str, text: str) -> tuple[str, ...]:
        """`accepts=[e4m3]` of an input; a placeholder has no other attribute."""
        (name, codes), *more = [*self.attributes(text), ("", None)]
        if role != "input" or name != "accepts" or more[:-1] or not isinstance(codes, list) or not codes:
            raise self.error(f"not attributes of a placeholder: {{{text[:80]}}}")
        if not all(isinstance(code, str) and code in CODES for code in codes) or len(set(codes)) < len(codes):
            raise self.error(f"an input takes {', '.join(CODES)}, each once: {{{text[:80]}}}")
        return tuple(codes)

    def call(self, match: re.Match[str], results: list[tuple[str, str, str]], source: str) -> None:
        attributes = dict(self.attributes(match["attributes"] or ""))
        arguments = self.items(match["args"], self.value)
        try:
            made = self.builder.call(match["op"], *arguments, source=source, **attributes)
        except KeyError as error:
            raise self.error(f"there is no op {match['op']}") from error
        except KvcError as error:
            raise self.error(error.diagnostics[0].message, error.diagnostics[0].code) from error
        nodes = made if isinstance(made, tuple) else (made,) if made is not None else ()
        if len(nodes) != len(results):
            raise self.error(f"{match['op']} has {len(nodes)} results, the text names {len(results)}", "KVC303")
        for node, (number, dtype, shape) in zip(nodes, results, strict=True):
            self.bind(node, number, f"{dtype}[{shape}]")
        if match["kernel"]:
            self.last_call().meta["kernel"] = match["kernel"]

    def last_call(self) -> torch.fx.Node:
        return next(node for node in reversed(self.builder.graph.fx.nodes) if node.target is not operator.getitem)

    def bind(self, node: torch.fx.Node, number: str, printed: str) -> None:
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor) or value.dtype not in DTYPE_NAMES:
            raise self.error(f"%{number} is printed as {printed} but is no tensor of a known dtype", "KVC303")
        inferred = self.builder.graph.symbols.type_text(value)
        if inferred != printed:
            raise self.error(f"%{number} is printed as {printed} but is {inferred}", "KVC303")
        self.number(number, node)

    def number(self, number: str, node: torch.fx.Node) -> None:
        if len(number) > _MAX_DIGITS or int(number) in self.values:
            raise self.error(f"%{number[:80]} is defined twice, or no number of a value")
        self.values[int(number)] = node

    def value(self, token: str) -> torch.fx.Node | None:
        return None if token == "none" else self.defined(token)

    def defined(self, token: str) -> torch.fx.Node:
        match = _VALUE.fullmatch(token)
        if not match or int(match[1]) not in self.values:
            raise self.error(f"{token[:80]} is not a value defined above")
        return self.values[int(match[1])]

    def items(self, text: str, read: Any) -> list[Any]:
        """Values separated by commas; lists nest."""
        lists: list[list[Any]] = [[]]
        for token in _TOKEN.findall(text):
            if token == "[":
                lists.append([])
            elif token != "]":
                lists[-1].append(read(token))
            elif len(lists) > 1:
                lists[-2].append(lists.pop())
            else:
                raise self.error("a bracket that is not open is closed")
        if len(lists) > 1:
            raise self.error("a bracket is not closed")
        return lists[0]

    def attributes(self, text: str) -> Iterator[tuple[str, Any]]:
        if not _ATTRIBUTES.fullmatch(text):
            raise self.error(f"not attributes: {{{text[:80]}}}")
        names = [name for name, _ in _ATTRIBUTE.findall(text)]
        if len(set(names)) < len(names):
            raise self.error(f"an attribute is given twice: {{{text[:80]}}}")
        for key, value in _ATTRIBUTE.findall(text):
            yield key, self.items(value, self.literal)[0]

    def literal(self, token: str) -> Any:
        try:
            return _literal(token)
        except ValueError as error:
            raise self.error(str(error)) from error


def _is_read_as_string(value: str) -> bool:
    """Not so for what is a word, a number (`inf`) or a dtype in the text."""
    return bool(_BARE.fullmatch(value)) and not value.startswith("torch.") and _literal(value) == value


def _literal(token: str) -> Any:
    if token in _WORDS:
        return _WORDS[token]
    if token.removeprefix("torch.") in DTYPES and token.startswith("torch."):
        return DTYPES[token.removeprefix("torch.")]
    for kind in (int, float):
        try:
            return kind(token)
        except ValueError:
            continue
    if not _BARE.fullmatch(token) or token.startswith("torch."):
        raise ValueError(f"not an attribute: {token[:80]}")
    return token
