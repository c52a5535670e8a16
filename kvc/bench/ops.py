"""Times the cases of one op, with the result checked against the reference in the same run."""

from collections.abc import Iterator

import torch

from kvc.bench.cases import cases_of, compare, copied, input_bytes, make_inputs
from kvc.bench.ceilings import Ceilings
from kvc.bench.peers import peer_of
from kvc.bench.rows import NO_PEER, Peer, device_name, row_of
from kvc.bench.timing import sets_beyond_cache, time_calls
from kvc.bench.work import work_of
from kvc.ops import OpDef
from kvc.ops.bench_shapes import Case
from kvc.ops.kernels import chosen_kernel
from kvc.report.bench_rows import Row


def bench_op(op: OpDef, device: torch.device, ceilings: Ceilings) -> Iterator[Row]:
    """A row a case."""
    for name, case in cases_of(op, device).items():
        yield bench_case(op, name, case, device, ceilings)


def bench_case(op: OpDef, name: str, case: Case, device: torch.device, ceilings: Ceilings) -> Row:
    """Check and time one call; inputs rotate among enough sets to be out of the L2 cache."""
    args, kwargs = make_inputs(op, case, device)
    error, results = _checked(op, args, kwargs)
    sets = [copied(args) for _ in range(sets_beyond_cache(input_bytes(args), device))]
    timing = time_calls([lambda one=one: op.overload(*one, **kwargs) for one in sets], device)  # type: ignore[misc]
    work = work_of(op, case, args, results)
    kernel = chosen_kernel(op, args, kwargs)
    return row_of(op.name, name, kernel, timing, work, ceilings, device_name(device), error, _peer(op, case, device))


def _checked(op: OpDef, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[float, object]:
    """The error of results and written operands, and the results."""
    mine, other = copied(args), copied(args)
    got, expected = op.overload(*mine, **kwargs), op.reference(*other, **kwargs)
    return max(compare(got, expected), compare(mine, other)), got


def _peer(op: OpDef, case: Case, device: torch.device) -> Peer:
    peer = peer_of(op.name, case) if device.type == "cuda" else None
    if peer is None:
        return NO_PEER
    return Peer(peer.name, time_calls([peer.make(case.shape, device)], device).median)
