"""Generation attention over cached rows, whatever they are read from."""

from collections.abc import Callable

import torch

from kvc.ops.attention import State, attend
from kvc.ops.history import Rows

KeysAndValues = tuple[torch.Tensor, torch.Tensor]


def decode(
    q: torch.Tensor,
    rows: Rows,
    lengths: torch.Tensor,
    v_dim: int,
    keys_and_values: Callable[[list[torch.Tensor]], KeysAndValues],
    softmax_scale: float,
) -> State:
    """As many query tokens a sequence, causal from the bottom right: query i of n sees rows ``[0, length - n + i]``.

    q [T, H, D]; lengths i32 [B]; keys_and_values makes K and V, f32 [Hk, L, dim], of a row's fields. Returns out
    [T, H, v_dim] in q's dtype and lse f32 [T, H]; a query that sees no row gets 0 and -inf.
    """
    out = q.new_zeros((*q.shape[:2], v_dim))
    lse = q.new_full(q.shape[:2], -torch.inf, dtype=torch.float32)
    queries = q.shape[0] // max(1, lengths.shape[0])
    for b, length in enumerate(lengths.tolist()):
        if length and queries:
            values, held = rows.read(b, 0, length)
            visible = [held(length - queries + i + 1) for i in range(queries)]
            own = slice(b * queries, (b + 1) * queries)
            out[own], lse[own] = attend(q[own], *keys_and_values(values), visible, softmax_scale)
    return out, lse
