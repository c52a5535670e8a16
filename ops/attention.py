"""Causal attention of one sequence in fp32, shared by the attention ops."""

import torch

# Scores held at once, in elements: 64 MiB of fp32. A block of queries shrinks as the keys grow, so memory is bounded.
_SCORES = 1 << 24
_QUERIES = 256  # no more queries a block than this: the masked half of a causal block is wasted work

State = tuple[torch.Tensor, torch.Tensor]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: list[int], softmax_scale: float) -> State:
    """Attention of query tokens over the keys each of them sees.

    q [n, H, D] of any activation dtype, k [Hk, L, D] and v [Hk, L, V] in fp32; query i sees keys ``[0, visible[i])``,
    never fewer than query i - 1. Returns out f32 [n, H, V] and the natural log-sum-exp of the scaled scores f32 [n, H];
    a query that sees no key gets 0 and -inf. The result depends on this sequence alone.
    """
    # [Hk, n, G, D]: the query heads of one KV head are rows of one matrix product, so K and V are never repeated.
    grouped = (q.float() * softmax_scale).unflatten(1, (k.shape[0], -1)).transpose(0, 1)
    step = max(1, min(_QUERIES, _SCORES // max(1, q.shape[1] * k.shape[1])))
    blind = visible.count(0)
    parts = [_blind(grouped[:, :blind], v.shape[2])] if blind else []
    for i in range(blind, len(visible), step):
        parts.append(_attend_block(grouped[:, i : i + step], k, v, visible[i : i + step]))
    out, lse = parts[0] if len(parts) == 1 else (torch.cat(tensors, 1) for tensors in zip(*parts, strict=True))
    return out.transpose(0, 1).flatten(1, 2), lse.transpose(0, 1).flatten(1, 2)


def _blind(q: torch.Tensor, v_dim: int) -> State:
    return q.new_zeros((*q.shape[:-1], v_dim)), q.new_full(q.shape[:-1], -torch.inf)


def _attend_block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: list[int]) -> State:
    first, last = visible[0], visible[-1]
    scores = (q.flatten(1, 2) @ k[:, :last].transpose(1, 2)).unflatten(1, q.shape[1:3])
    if first != last:
        hidden = torch.arange(first, last, device=q.device) >= torch.tensor(visible, device=q.device)[:, None, None]
        scores[..., first:].masked_fill_(hidden, -torch.inf)
    weights, most = scores.softmax(-1), scores.amax(-1)
    # The largest score has the weight exp(0) / total.
    lse = most - weights.amax(-1).log()
    if (nothing := most == -torch.inf).any():  # keys of inf alone: no weights, or softmax makes NaN of them
        weights, lse = weights.masked_fill(nothing[..., None], 0), lse.masked_fill(nothing, -torch.inf)
    return _weighted(weights, v[:, :last], visible), lse


def _weighted(weights: torch.Tensor, v: torch.Tensor, visible: list[int]) -> torch.Tensor:
    """Weights [Hk, n, G, L] times v [Hk, L, V]: a weight of 0 hides no NaN or Inf, so rows of them are left out.

    Queries that see such a row are done again, each with the rows that it sees; the others keep their bits.
    """
    first, last = visible[0], visible[-1]
    broken = [] if first == last or v[:, first:].isfinite().all() else _broken_rows(v, first)
    shown = v.index_fill(1, torch.tensor(broken, device=v.device), 0) if broken else v
    out = (weights.flatten(1, 2) @ shown).unflatten(1, weights.shape[1:3])
    for i, seen in enumerate(visible if broken else ()):
        if seen > broken[0]:
            out[:, i] = weights[:, i, :, :seen] @ v[:, :seen]
    return out


def _broken_rows(v: torch.Tensor, first: int) -> list[int]:
    """Rows from ``first`` on that hold NaN or Inf."""
    finite = v[:, first:].isfinite().all(-1).all(0)
    return [first + row for row, good in enumerate(finite.tolist()) if not good]
