"""Calls that gather latent rows: a history in any encoding, its twin in fp8, tables with holes, any selection."""

from dataclasses import dataclass, field, replace

import torch

from kvc.ops import mla_inputs
from kvc.ops import twin_inputs as twins
from kvc.ops.codecs import MLA
from kvc.ops.example_inputs import Shape, committed, lengths, page_table, scale_for, sequence_ids
from kvc.ops.sparse_inputs import selected as select

ops = torch.ops.kvc
SIZES = {"fp8_ds_mla": {"latent_dim": 512, "rope_dim": 64}}
ENCODINGS = ("fp32", "bf16", "fp8", "nvfp4", "nvfp4_rope_fp8", "nvfp4_residual", "fp8_ds_mla")
KEPT = {"first": 3, "last": 6, "unit": "token"}
STEP = Shape(committed=(5, 0, 37), own=(2, 2, 2), dtype=torch.float32, padding=2)


def step(encoding, shape=STEP):
    return replace(shape, encoding=encoding, **SIZES.get(encoding, {}))


@dataclass
class Cache:
    """A history and a twin of the same rows; other bytes are 0xFF, NaN in every encoding."""

    shape: Shape
    twin_encoding: str = "fp8"
    table: torch.Tensor = field(init=False)
    twin_table: torch.Tensor = field(init=False)

    def __post_init__(self):
        high = replace(self.shape, encoding=self.twin_encoding)
        self.pool, self.twin = mla_inputs.pool(self.shape), mla_inputs.pool(high)
        self.scales, self.twin_scales = list(mla_inputs.scales(self.shape)), list(mla_inputs.scales(high))
        self.table, self.twin_table = page_table(self.shape), twins.table(self.shape)
        self.lengths, self.committed = lengths(self.shape), committed(self.shape)
        self.sequence_ids = sequence_ids(self.shape)
        self.size = self.shape.tokens_per_page

    def _how(self, encoding, codes, dtype):
        dims = [self.shape.latent_dim, self.shape.rope_dim]
        rows = {"fields": list(MLA), "heads": [1, 1], "dims": dims, "tokens_per_page": self.size}
        return {"encoding": encoding, "dtype": torch.uint8 if codes else dtype, **rows}

    def _chosen(self, selected, codes):
        of = None if selected is None else self.sequence_ids
        return selected, of, scale_for("fp8", "latent") if codes else None

    def gather_call(self, selected=None, codes=False, dtype=torch.float32):
        read = self.pool, self.table, self.lengths, self.scales, *self._chosen(selected, codes)
        return read, self._how(self.shape.encoding, codes, dtype)

    def gather(self, *args, **options):
        call, how = self.gather_call(*args, **options)
        return ops.gather_rows.default(*call, **how)

    def gather_twin(self, table, selected=None, codes=False):
        read = self.twin, table, self.lengths, self.twin_scales, *self._chosen(selected, codes)
        return ops.gather_rows.default(*read, **self._how(self.twin_encoding, codes, torch.float32))

    def overlay_call(self, rows, kept, selected=None, codes=False):
        how = {"encoding": self.twin_encoding, "fields": list(MLA), "tokens_per_page": self.size}
        read = self.twin, self.twin_table, self.lengths, self.committed, self.twin_scales
        return (rows, *read, *self._chosen(selected, codes)), how | kept

    def overlay(self, *args):
        call, how = self.overlay_call(*args)
        return ops.overlay_retained_rows.default(*call, **how)

    def mixed_call(self, kept, selected=None, codes=False, dtype=torch.float32):
        tables = self.pool, self.table, self.twin, self.twin_table, self.lengths, self.committed
        how = self._how(self.shape.encoding, codes, dtype) | {"twin_encoding": self.twin_encoding} | kept
        return (*tables, self.scales, self.twin_scales, *self._chosen(selected, codes)), how

    def mixed(self, *args, **options):
        call, how = self.mixed_call(*args, **options)
        return ops.gather_mixed_rows.default(*call, **how)

    def is_held(self, table, token, position):
        """Whether a token reads a row there: the rule in words."""
        sequence = int(self.sequence_ids[token])
        inside = sequence >= 0 and 0 <= position < int(self.lengths[sequence])
        return inside and int(table[sequence, position // self.size]) >= 0


def bytes_of(x):
    return x.contiguous().view(torch.uint8)


def same(left, right):
    return all(torch.equal(bytes_of(a), bytes_of(b)) for a, b in zip(left, right, strict=True))


def variant(op, codes, selects=True):
    """A call of one of the three ops by its name, as `op_variants.VARIANTS` has them."""
    cache = Cache(step("nvfp4"))
    selected = select(cache.shape) if selects else None
    if op == "gather_rows":
        return op, *cache.gather_call(selected, codes)
    if op == "gather_mixed_rows":
        return op, *cache.mixed_call(KEPT, selected, codes)
    return op, *cache.overlay_call(cache.gather(selected, codes), KEPT, selected, codes)
