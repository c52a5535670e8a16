"""What the graphs of every layer kind share: placeholders, RoPE, and the store of a step's rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
import torch.fx

from kvc.encodings import ENCODINGS, Encoding
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

    def __init__(
        self, name: str, signature: Signature, inputs: Mapping[str, tuple[int, ...]], weights: Weights = _NO_WEIGHTS
    ) -> None:
        self.run = signature.run
        self.encoding, self.fields = ENCODINGS[self.run.encoding], self.run.shape.fields
        self.source = f"{self.run.source.path}:{self.run.source.line}"
        self.b = GraphBuilder(name)
        self.dtype = ACTIVATION_DTYPES[signature.dtype]
        self.inputs = {key: self.b.placeholder("input", key, self.dtype, ("T", *dims)) for key, dims in inputs.items()}
        self.pool = self.b.placeholder("pool", "history", torch.uint8, ("P", signature.buffers["history"].page_bytes))
        self.scales = self._scales(self.encoding)
        self.twin = self._twin(signature)
        self.table = self._rope_table()
        self.weights = {key: self.b.placeholder("weight", key, self.dtype, shape) for key, shape in weights.items()}
        self.context_scales = {key: self.scale(f"context_{key}") for key in self._context_fields()}
        self.step: StepValues = derive_step_values(self.b, signature, self.source)

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
        encoded = [
            self._encode(field.name, value, scale)
            for field, value, scale in zip(self.fields, values, self.scales.values(), strict=True)
        ]
        row = row_format("lowering", self.encoding.name, self.fields)
        planes = [self._joined([encoded[field][part] for field, part in parts]) for parts in row.planes]
        rows, size = self.step.write_rows, self.run.tokens_per_page
        self.call("store_rows", self.pool, planes, rows["history"], tokens_per_page=size)
        if self.twin:
            names, how = [field.name for field in self.fields], {"encoding": self.twin.retain.encoding}
            operands = (self.twin.pool, list(values), rows["twin"], None, None, list(self.twin.scales))
            self.call("store_retained_rows", *operands, **how, fields=names, tokens_per_page=size)

    def _encode(self, field: str, value: Node, scale: Node | None) -> tuple[Node, ...]:
        made = self.call(f"quantize_{self.encoding.codec_of(field)}", value, scale)
        return made if isinstance(made, tuple) else (made,)

    def _joined(self, parts: list[Node]) -> Node:
        """One plane of whole rows, where an encoding keeps parts together."""
        return parts[0] if len(parts) == 1 else self.b.call("aten.cat", parts, source=self.source, dim=-1)

    def gathered(self, lengths: Node) -> list[Node]:
        """Rows below ``lengths`` of history and twin, [B, L, heads, dim] a field.

        In fp32, so that nothing is rounded that attention which reads the pages would not round.
        """
        fields, size, step = self._field_sizes(), self.run.tokens_per_page, self.step
        operands = (self.pool, step.page_table, lengths, list(self.scales.values()))
        rows = self.call("gather_rows", *operands, **self.history(), **fields, dtype=torch.float32)
        if self.twin is None:
            return list(rows)
        twin = (self.twin.pool, step.page_tables["twin"], lengths, step.committed, list(self.twin.scales))
        how = {"encoding": self.twin.retain.encoding, "fields": fields["fields"], "tokens_per_page": size}
        return list(self.call("overlay_retained_rows", list(rows), *twin, **how, **self.twin.retained))

    def _field_sizes(self) -> dict[str, list[Any]]:
        names, heads, dims = zip(*((field.name, field.heads, field.dim) for field in self.fields), strict=True)
        return {"fields": list(names), "heads": list(heads), "dims": list(dims)}

    def history(self) -> dict[str, Any]:
        """Attributes of an op that reads the history."""
        return {"encoding": self.run.encoding, "tokens_per_page": self.run.tokens_per_page}
