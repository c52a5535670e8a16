"""Calls of ops in forms that their examples do not have: whole rows, V transposed, codes made by the caller."""

from dataclasses import replace
from functools import partial

import torch
from mixed_calls import Mixed, write_rows
from sparse_calls import Cache, variant

from kvc.ops import OPS
from kvc.ops import mla_inputs as inputs
from kvc.ops.example_inputs import Shape, committed, query_starts, scale_for

WHOLE_ROWS = Shape(encoding="fp8_ds_mla", latent_dim=512, rope_dim=64)
PLAIN = Shape(encoding="bf16")


def _example(name, shape, codes=()):
    """The example, with codes of fp8 for operands given as (index, what their scale is called)."""
    args, kwargs = OPS[name].example(shape)
    args = list(args)
    for index, field in codes:
        args[index] = torch.ops.kvc.quantize_fp8.default(args[index], scale_for("fp8", field))
    return name, tuple(args), kwargs


def _transposed(scaled):
    """A context step on a bf16 cache with V transposed; K and V stay in the activation dtype, the op encodes them."""
    name, args, kwargs = _example("mla_context", PLAIN)
    rows = inputs.latent(PLAIN), inputs.k_rope(PLAIN), *inputs.weights(PLAIN)
    own = torch.ops.kvc.expand_mla.default(*rows, query_starts(PLAIN), None, None, v_layout="transposed")
    scales = [scale_for("fp8", field) if scaled else None for field in "qkv"]
    return name, (*args[:2], *own, *args[4:12], *scales), kwargs | {"v_layout": "transposed"}


def _expand(**options):
    rows = inputs.latent(PLAIN), inputs.k_rope(PLAIN), *inputs.weights(PLAIN)
    starts = query_starts(PLAIN) if options else None
    scales = (None, None) if options else (scale_for("fp8", "k"), scale_for("fp8", "v"))
    return "expand_mla", (*rows, starts, *scales), options


def _sparse(encoding):
    """A step over whole sequences of rows, as in the context phase, in values or codes."""
    shape = Shape(encoding=encoding, padding=1)
    _, args, how = _example("mla_sparse", shape)
    cache = Cache(shape)
    rows = cache.gather(codes=encoding == "fp8", dtype=shape.dtype)
    return "mla_sparse", (*args[:2], *rows, *args[4:]), how | {"rows_of": "sequence"}


_GATHERS = ("gather_rows", "overlay_retained_rows", "gather_mixed_rows")
MIXED = replace(PLAIN, encoding="nvfp4")


def _mixed(name, kind):
    """An op that reads or writes an fp8 twin beside an nvfp4 history."""
    _, args, kwargs = _example(name, MIXED)
    case = Mixed(MIXED, "fp8", 3, 6, "token", kind=kind)
    if name.startswith("append"):
        twin = torch.full_like(case.pool("fp8"), 0xFF), write_rows(MIXED, case.twin_table)
        return name, (*args, *twin, *case.scales("fp8")), kwargs | {"twin_encoding": "fp8"}
    twin = case.pool("fp8"), case.twin_table, *([committed(MIXED)] if name.endswith("decode") else [])
    return name, (*args, *twin, *case.scales("fp8")), kwargs | case.how


VARIANTS = {
    "append_mla, whole rows": lambda: _example("append_mla", WHOLE_ROWS),
    "append_mla, whole rows in fp32": lambda: _example("append_mla", replace(WHOLE_ROWS, dtype=torch.float32)),
    "mla_decode, whole rows": lambda: _example("mla_decode", WHOLE_ROWS),
    "mla_context, whole rows": lambda: _example("mla_context", WHOLE_ROWS),
    "append_mla, codes": lambda: _example("append_mla", Shape(), [(2, "latent")]),
    "append_gqa, codes": lambda: _example("append_gqa", Shape(), [(3, "v")]),
    "mla_context, all codes": lambda: _example("mla_context", Shape(), [(0, "q"), (1, "q")]),
    "mla_context, codes of q_rope": lambda: _example("mla_context", Shape(), [(1, "q")]),
    "mla_context, V transposed": lambda: _transposed(scaled=False),
    "mla_context, V transposed, scales": lambda: _transposed(scaled=True),
    "append_gqa, twin": lambda: _mixed("append_gqa", "gqa"),
    "append_mla, twin": lambda: _mixed("append_mla", "mla"),
    "gqa_context, twin": lambda: _mixed("gqa_context", "gqa"),
    "gqa_decode, twin": lambda: _mixed("gqa_decode", "gqa"),
    "mla_context, twin": lambda: _mixed("mla_context", "mla"),
    "mla_decode, twin": lambda: _mixed("mla_decode", "mla"),
    "expand_mla, codes": lambda: _expand(),
    "expand_mla, V transposed": lambda: _expand(v_layout="transposed"),
    "place_own_rows, values": lambda: _example("place_own_rows", PLAIN),
    "mla_sparse, values": lambda: _example("mla_sparse", PLAIN),
    "mla_sparse, values of sequences": lambda: _sparse("bf16"),
    "mla_sparse, codes of sequences": lambda: _sparse("fp8"),
    **{f"{op}, selected": partial(variant, op, codes=False) for op in _GATHERS},
    **{f"{op}, codes": partial(variant, op, codes=True, selects=False) for op in _GATHERS},
    **{f"{op}, selected codes": partial(variant, op, codes=True) for op in _GATHERS},
}
