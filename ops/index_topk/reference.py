"""Reference of kvc::index_topk."""

import torch

from kvc.encodings import Field
from kvc.ops.codecs import RowFormat, row_format
from kvc.ops.gathered import page_of
from kvc.ops.paging import plane_views

_SCORES = 1 << 24  # scores of all heads held at once, in elements: 64 MiB of fp32


def index_topk(
    index_q: torch.Tensor,
    weights: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    *,
    encoding: str,
    tokens_per_page: int,
    top_k: int,
    score_scale: float,
) -> torch.Tensor:
    """The ``top_k`` rows that an indexer scores highest for every token, which attention is to read.

    index_q [T, Hi, Di] after RoPE; weights f32 [T, Hi], as projected; pool uint8 [P, page_bytes] of index keys in
    ``encoding``, one of Di values a token, this step's included; page_table i32 [B, W], -1 not held; positions i32 [T];
    sequence_ids i32 [T], -1 for padding. Token t scores the rows ``[0, positions[t]]`` of its sequence that are on a
    page held: ``sum over heads of weights[t, h] * Hi^-0.5 * relu(q_h . k * score_scale)``, in fp32.
    Returns i32 [T, top_k]: positions, best first, of equal scores the lower one first, NaN before all numbers; -1
    behind them where there are fewer, and for padding. Bytes of other rows change nothing.
    Errors: KVC551 shapes and dtypes, KVC552 page, position or sequence out of range, KVC554 encoding.
    Source: docs/semantics.md; arXiv 2512.02556 without its Hadamard transform, which leaves q . k as it is.
    """
    selected = positions.new_full((len(positions), top_k), -1)
    row = row_format("index_topk", encoding, (Field("key", 1, index_q.shape[2]),))
    for sequence in sequence_ids[sequence_ids >= 0].unique():
        tokens = (sequence_ids == sequence).nonzero().flatten()
        rows, keys = _keys(pool, page_table, sequence, int(positions[tokens].max()) + 1, row, tokens_per_page)
        step = max(1, _SCORES // max(1, index_q.shape[1] * len(rows)))
        for some in tokens.split(step):
            scores = _scores(index_q[some], weights[some], keys, score_scale)
            best = _best(scores, rows, positions[some], top_k)
            selected[some, : best.shape[1]] = best
    return selected


def _keys(
    pool: torch.Tensor, page_table: torch.Tensor, sequence: torch.Tensor, stop: int, row: RowFormat, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The positions below ``stop`` that are held, ``[n]``, and their keys in fp32 ``[n, Di]``."""
    pages = page_of(page_table, sequence, torch.arange(stop, device=pool.device), size)
    rows = (pages >= 0).nonzero().flatten()
    planes = [view[pages[rows], :, rows % size] for view in plane_views(pool, row.layout(size))]
    return rows, row.decode(planes, (None,))[0][:, 0]


def _scores(q: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor, score_scale: float) -> torch.Tensor:
    """``[t, n]``, in the order of operations of Hugging Face's indexers."""
    each = torch.relu(torch.matmul(q.float(), keys.T) * score_scale)
    return torch.matmul((weights * q.shape[1] ** -0.5)[:, None], each)[:, 0]


def _best(scores: torch.Tensor, rows: torch.Tensor, last: torch.Tensor, top_k: int) -> torch.Tensor:
    """Positions by falling score of those up to ``last``, -1 behind: a stable sort, and later rows are behind it."""
    seen = rows <= last[:, None]
    order = scores.masked_fill(~seen, -torch.inf).sort(dim=-1, descending=True, stable=True).indices[:, :top_k]
    rank = torch.arange(order.shape[1], device=rows.device)
    return rows[order].masked_fill(rank >= seen.sum(-1, keepdim=True), -1).to(last.dtype)
