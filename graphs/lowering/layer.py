"""What the graphs of every layer kind share: placeholders, RoPE, and the store of a step's rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import torch.fx

from kvc.encodings import ENCODINGS, Encoding, Field
from kvc.graphs.builder import GraphBuilder
from kvc.graphs.lowering.signature import Signature
from kvc.graphs.lowering.step import StepValues, derive_step_values
from kvc.ops.axes import ACTIVATION_DTYPES
from kvc.ops.codecs import row_format
from kvc.specs.resolved import Retained

Node = torch.fx.Node
Weights = Mapping[str, tuple[int, ...]]  # name -> shape
_NO_WEIGHTS: Weights = MappingProxyType({})


@dataclass(frozen=True)
class Twin:
    """The twin of a layer: its pool, a scale operand a field, and what is kept in it."""

    pool: Node
    scales: tuple[Node | None, ...]
    retain: Retained

    @property
    def retained(self) -> dict[str, Any]:
        """Attributes of an op that reads the twin."""
        return {"first": self.retain.first, "last": self.retain.last, "unit": self.retain.unit}


class LayerLowering:
    """One layer graph in the making.

    ``inputs`` gives the shape of each input behind its tokens; a kind's own placeholders are declared between those and
    the step's. Fields of a row that share a scale operand have one placeholder for it.
    """

    wide_inputs: ClassVar[frozenset[str]] = frozenset()  # in fp32 whatever the activation dtype

    def __init__(
        self, name: str, signature: Signature, inputs: Mapping[str, tuple[int, ...]], weights: Weights = _NO_WEIGHTS
    ) -> None:
        self.run = signature.run
        self.encoding, self.fields = ENCODINGS[self.run.encoding], self.run.shape.fields
        self.source = f"{self.run.source.path}:{self.run.source.line}"
        self.b = GraphBuilder(name)
        self.dtype = ACTIVATION_DTYPES[signature.dtype]
        self.inputs = {key: self._input(key, dims) for key, dims in inputs.items()}
        self.pool = self.b.placeholder("pool", "history", torch.uint8, ("P", signature.buffers["history"].page_bytes))
        self.scales = self._scales(self.encoding)
        self.twin = self._twin(signature)
        self.table = self._rope_table()
        self.weights = {key: self.b.placeholder("weight", key, self.dtype, shape) for key, shape in weights.items()}
        self.context_scales = {key: self.scale(f"context_{key}") for key in self._context_fields()}
        self.declare(signature)
        self.step: StepValues = derive_step_values(self.b, signature, self.source)

    def declare(self, signature: Signature) -> None:
        """Declare a kind's own placeholders; called before those of the step."""

    def _input(self, name: str, dims: tuple[int, ...]) -> Node:
        dtype = torch.float32 if name in self.wide_inputs else self.dtype
        return self.b.placeholder("input", name, dtype, ("T", *dims))

    def _context_fields(self) -> tuple[str, ...]:
        return tuple(self.run.context.scales.fields) if self.run.context.dtype == "fp8" else ()

    def _scales(self, encoding: Encoding, prefix: str = "") -> dict[str, Node | None]:
        """The scale operand that each field of a row is stored under."""
        names = tuple(field.name for field in self.fields)
        own = {name: self.scale(prefix + name) for name in encoding.scale_fields(names)}
        return {name: own.get(encoding.scale_field(name, names)) for name in names}

    def _twin(self, signature: Signature) -> Twin | None:
        retain = self.run.retain
        if retain is None:
            return None
        pool = self.b.placeholder("pool", "twin", torch.uint8, ("Q", signature.buffers["twin"].page_bytes))
        return Twin(pool, tuple(self._scales(ENCODINGS[retain.encoding], "twin_").values()), retain)

    def scale(self, name: str) -> Node:
        """Declare a scale operand."""
        return self.b.placeholder("scale", name, torch.float32, (2,))

    def _rope_table(self) -> Node | None:
        rope = self.run.shape.rope
        return self.b.placeholder("table", "rope", torch.float32, ("M", rope.dim)) if rope else None

    def call(self, op: str, *args: Any, **attributes: Any) -> Any:
        """A kvc op, citing the layer's spec line."""
        return self.b.call(f"kvc.{op}", *args, source=self.source, **attributes)

    def rotate(self, x: Node) -> Node:
        """x [T, heads, D] with positions encoded, or as it is in a layer without RoPE."""
        rope = self.run.shape.rope
        return self.call("rope", x, self.table, self.step.positions, layout=rope.layout) if rope else x

    def store(self, *values: Node) -> None:
        """Encode this step's rows, one value a field, and write them to the history and to a twin."""
        planes = self.planes(self.encoding, self.fields, values, tuple(self.scales.values()))
        rows, size = self.step.write_rows, self.run.tokens_per_page
        self.call("store_rows", self.pool, planes, rows["history"], tokens_per_page=size)
        if self.twin:
            names, how = [field.name for field in self.fields], {"encoding": self.twin.retain.encoding}
            operands = (self.twin.pool, list(values), rows["twin"], None, None, list(self.twin.scales))
            self.call("store_retained_rows", *operands, **how, fields=names, tokens_per_page=size)

    def planes(
        self, encoding: Encoding, fields: tuple[Field, ...], values: Sequence[Node], scales: Sequence[Node | None]
    ) -> list[Node]:
        """The planes of rows, of one value and one scale operand a field."""
        encoded = [
            self._encode(encoding.codec_of(field.name), value, scale)
            for field, value, scale in zip(fields, values, scales, strict=True)
        ]
        row = row_format("lowering", encoding.name, fields)
        return [self._joined([encoded[field][part] for field, part in parts]) for parts in row.planes]

    def _encode(self, codec: str, value: Node, scale: Node | None) -> tuple[Node, ...]:
        made = self.call(f"quantize_{codec}", value, scale)
        return made if isinstance(made, tuple) else (made,)

    def _joined(self, parts: list[Node]) -> Node:
        """One plane of whole rows, where an encoding keeps parts together."""
        return parts[0] if len(parts) == 1 else self.b.call("aten.cat", parts, source=self.source, dim=-1)

    def gathered(
        self,
        lengths: Node,
        selection: tuple[Node, Node] | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        code_scale: Node | None = None,
    ) -> list[Node]:
        """Rows below ``lengths`` of history and twin, [B, L, heads, dim] a field.

        In fp32, so that nothing is rounded that attention which reads the pages would not round. With a ``selection``,
        positions [T, K] and the sequences of the tokens, those rows, [T, K, heads, dim]; with a ``code_scale`` as e4m3
        codes under it.
        """
        fields, size, step = self._field_sizes(), self.run.tokens_per_page, self.step
        where = _selected(selection, code_scale)
        operands = (self.pool, step.page_table, lengths, list(self.scales.values()), *where)
        rows = self.call("gather_rows", *operands, **self.history(), **fields, dtype=dtype)
        if self.twin is None:
            return list(rows)
        twin = (self.twin.pool, step.page_tables["twin"], lengths, step.committed, list(self.twin.scales), *where)
        how = {"encoding": self.twin.retain.encoding, "fields": fields["fields"], "tokens_per_page": size}
        return list(self.call("overlay_retained_rows", list(rows), *twin, **how, **self.twin.retained))

    def _field_sizes(self) -> dict[str, list[Any]]:
        names, heads, dims = zip(*((field.name, field.heads, field.dim) for field in self.fields), strict=True)
        return {"fields": list(names), "heads": list(heads), "dims": list(dims)}

    def history(self) -> dict[str, Any]:
        """Attributes of an op that reads the history."""
        return {"encoding": self.run.encoding, "tokens_per_page": self.run.tokens_per_page}


def _selected(selection: tuple[Node, Node] | None, code_scale: Node | None) -> tuple[Node | None, ...]:
    """The operands of a gathering op that say which rows, and codes under what; left out where that is nothing."""
    if selection is None and code_scale is None:
        return ()
    return (*(selection or (None, None)), *((code_scale,) if code_scale else ()))
