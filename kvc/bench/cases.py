"""The calls that are timed: the cases of every op's `bench.py`, made on the device."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch

from kvc.ops import OPS, OpDef, mla_inputs
from kvc.ops import example_inputs as inputs
from kvc.ops.bench_shapes import Case, Twin
from kvc.ops.codecs import KV, MLA
from kvc.ops.example_inputs import Example, scale_for


def cases_of(op: OpDef, device: torch.device) -> dict[str, Case]:
    """Named cases of an op: those of models of today on a GPU, small ones on a CPU."""
    module = import_module(f"{op.folder}.bench")
    small = {name: Case(shape) for name, shape in module.CASES.items()}
    return small if device.type != "cuda" else getattr(module, "GPU_CASES", small)


def make_inputs(op: OpDef, case: Case, device: torch.device) -> Example:
    """Arguments of the case's call on the device, random as in the tests."""
    with torch.device(device):
        args, kwargs = _MAKERS.get(op.name, _example)(op, case)
        return tuple(args), kwargs


def copied(value: Any) -> Any:
    """Arguments in memory of their own, with the same strides."""
    if isinstance(value, list | tuple):
        return [copied(one) for one in value]
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)


def input_bytes(values: Any) -> int:
    """Bytes of the tensors in a nesting."""
    if isinstance(values, torch.Tensor):
        return values.nbytes
    return sum(map(input_bytes, values)) if isinstance(values, list | tuple) else 0


def _example(op: OpDef, case: Case) -> Example:
    args, kwargs = op.example(case.shape)
    if case.twin is None:
        return args, kwargs
    more = (_twin_operand(case, case.twin, name) for name in op.operand_names[len(args) :])
    attributes = {"twin_encoding": case.twin.encoding, "first": case.twin.first, "last": case.twin.last}
    return (*args, *more), kwargs | {name: value for name, value in attributes.items() if name in op.defaults}


def _twin_operand(case: Case, twin: Twin, name: str) -> Any:
    if name.endswith("_twin_scale"):
        return scale_for(twin.encoding, name.removesuffix("_twin_scale"))
    made: dict[str, Callable[[], torch.Tensor]] = {
        "twin": lambda: _pool(case, twin.encoding),
        "twin_rows": lambda: inputs.rows(case.shape),
        "twin_table": lambda: _twin_table(case, twin),
        "committed": lambda: inputs.committed(case.shape),
    }
    return made[name]()


def _pool(case: Case, encoding: str) -> torch.Tensor:
    return (mla_inputs if case.latent else inputs).pool(replace(case.shape, encoding=encoding))


def _twin_table(case: Case, twin: Twin) -> torch.Tensor:
    """Pages of the twin, -1 between those of the first and of the last retained rows."""
    table, size = inputs.page_table(case.shape), case.shape.tokens_per_page
    for row, committed in zip(table, case.shape.committed, strict=True):
        row[-(-twin.first // size) : max(0, committed - twin.last) // size] = -1
    return table


def _gather(op: OpDef, case: Case) -> Example:
    """A gather of whole sequences, with the overlay of a twin where the case has one."""
    shape, fields = case.shape, MLA if case.latent else KV
    dims = [shape.latent_dim, shape.rope_dim] if case.latent else [shape.head_dim, shape.v_head_dim]
    heads = [1, 1] if case.latent else [shape.kv_heads] * 2
    how = {"fields": list(fields), "heads": heads, "dims": dims, "tokens_per_page": shape.tokens_per_page}
    how |= {"encoding": shape.encoding, "dtype": shape.dtype}
    history = _pool(case, shape.encoding), inputs.page_table(shape)
    scales = [scale_for(shape.encoding, field) for field in fields]
    if op.name == "gather_rows":
        return (*history, inputs.lengths(shape), scales), how
    twin = case.twin or Twin()
    how |= {"twin_encoding": twin.encoding, "first": twin.first, "last": twin.last, "unit": "token"}
    held = _pool(case, twin.encoding), _twin_table(case, twin), inputs.lengths(shape), inputs.committed(shape)
    return (*history, *held, scales, [scale_for(twin.encoding, field) for field in fields]), how


def _tables(op: OpDef, case: Case) -> Example:
    """Slot tables of as many sequences as the shape has, pools as the pages of its slots say."""
    slots = inputs.page_table(case.shape)[:, :-1].contiguous()
    pools = case.shape.heads
    lists = {"lifecycles": [0] * pools, "pages_per_slot": list(range(1, pools + 1)), "offsets": [0] * pools}
    return (slots[None],), lists


_MAKERS: dict[str, Callable[[OpDef, Case], Example]] = {
    "gather_rows": _gather,
    "gather_mixed_rows": _gather,
    "copy_page_tables": _tables,
}


def compare(got: Any, expected: Any) -> float:
    """The largest error over the tensors of two nestings."""
    if isinstance(got, torch.Tensor):
        return _error(got, expected)
    pairs = zip(got, expected, strict=True) if isinstance(got, list | tuple) else ()
    return max((compare(a, b) for a, b in pairs), default=0.0)


def _error(got: torch.Tensor, expected: torch.Tensor) -> float:
    if not got.numel() or torch.equal(got, expected):
        return 0.0
    if not got.dtype.is_floating_point:
        return float((got != expected).double().mean())
    a, b = (x.double().nan_to_num(0.0, 0.0, 0.0) for x in (got, expected))
    return float((a - b).norm() / b.norm().clamp_min(1e-30))


def every_op(only: Sequence[str]) -> list[OpDef]:
    """Ops whose name contains one of the words; all of them without any."""
    return [op for name, op in OPS.items() if not only or any(word in name for word in only)]
