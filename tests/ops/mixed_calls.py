"""Calls of ops that read a history and its twin, of one random batch, in every form: paged, gathered, plain."""

from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

from kvc.ops import OPS
from kvc.ops import example_inputs as inputs
from kvc.ops import mla_inputs as latent
from kvc.ops.codecs import KV, MLA
from kvc.ops.example_inputs import Shape, scale_for

PAIRS = [("nvfp4", "bf16"), ("nvfp4", "fp8"), ("fp8", "bf16")]
LATENT_PAIRS = [*PAIRS, ("nvfp4_rope_fp8", "fp8"), ("nvfp4_residual", "bf16")]


@dataclass(frozen=True)
class Mixed:
    """A batch, the encodings of both pools, what is retained, and the pages that the twin does not hold."""

    shape: Shape
    twin: str
    first: int
    last: int
    unit: str
    released: tuple[tuple[int, int], ...] = ()
    kind: str = "gqa"

    @property
    def how(self):
        """Attributes that say what is read from the twin."""
        return {"twin_encoding": self.twin, "first": self.first, "last": self.last, "unit": self.unit}

    @property
    def fields(self):
        """Names of a row's fields."""
        return KV if self.kind == "gqa" else MLA

    @property
    def sizes(self):
        """Fields, heads and dims, as gathers take them."""
        shape = self.shape
        dims = [shape.head_dim, shape.v_head_dim] if self.kind == "gqa" else [shape.latent_dim, shape.rope_dim]
        return {"fields": list(self.fields), "heads": [shape.kv_heads if self.kind == "gqa" else 1] * 2, "dims": dims}

    def scales(self, encoding):
        """Scale operands of a row's fields."""
        return [scale_for(encoding, field) for field in self.fields]

    def pool(self, encoding):
        """A pool of the batch's rows, poisoned elsewhere."""
        return (inputs if self.kind == "gqa" else latent).pool(replace(self.shape, encoding=encoding))

    @property
    def table(self):
        """Pages of the history."""
        return inputs.page_table(self.shape)

    @property
    def twin_table(self):
        """Pages of the twin: other ids would do as well, so the same; -1 where it holds none."""
        table = self.table
        for b, page in self.released:
            table[b % len(table), page % table.shape[1]] = -1
        return table

    def gathered(self, lengths, committed):
        """Rows of both pools in fp32, in one op."""
        args = self.pool(self.shape.encoding), self.table, self.pool(self.twin), self.twin_table, lengths, committed
        scales = self.scales(self.shape.encoding), self.scales(self.twin)
        how = {"encoding": self.shape.encoding, "tokens_per_page": self.shape.tokens_per_page, "dtype": torch.float32}
        return torch.ops.kvc.gather_mixed_rows.default(*args, *scales, **how, **self.how, **self.sizes)


def batches(kind, pairs, uniform):
    """Random batches; ``uniform``: every sequence has as many own tokens."""

    @st.composite
    def draw(pick):
        encoding, twin = pick(st.sampled_from(pairs))
        count = pick(st.integers(1, 3))
        own = [pick(st.integers(1, 3))] * count if uniform else [pick(st.integers(0, 5)) for _ in range(count)]
        own = own if any(own) else [1] * count
        shape = Shape(
            committed=tuple(pick(st.integers(0, 40)) for _ in range(count)),
            own=tuple(own),
            tokens_per_page=pick(st.sampled_from([1, 2, 4, 16])),
            encoding=encoding,
            dtype=pick(st.sampled_from([torch.float32, torch.bfloat16])),
        )
        released = tuple((pick(st.integers(0, 2)), pick(st.integers(0, 40))) for _ in range(pick(st.integers(0, 4))))
        ends = st.one_of(st.integers(0, 8), st.integers(30, 50))
        unit = pick(st.sampled_from(["token", "page"]))
        return Mixed(shape, twin, pick(ends), pick(ends), unit, released, kind)

    return draw()


def same(one, other):
    """Equal bits of both results."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def example(op, shape):
    """An example call as a list and a dict."""
    args, how = OPS[op].example(shape)
    return list(args), how


def write_rows(shape, table):
    """Write rows of a step in the pages of a table."""
    args = table, inputs.positions(shape), inputs.sequence_ids(shape)
    return torch.ops.kvc.write_rows.default(*args, tokens_per_page=shape.tokens_per_page)
