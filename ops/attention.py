"""Causal attention of one sequence in fp32, shared by `gqa_context` and `gqa_decode`."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import torch

from kvc.encodings import ENCODINGS
from kvc.ops.codecs import CODECS
from kvc.ops.paging import layout_of, read_rows

# Scores held at once, in elements: 64 MiB of fp32. A block of queries shrinks as the keys grow, so memory is bounded.
_SCORES = 1 << 24
_QUERIES = 256  # no more queries a block than this: the masked half of a causal block is wasted work


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: list[int], softmax_scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of query tokens over the keys each of them sees.

    q [n, H, D] of any activation dtype, k [Hk, L, D] and v [Hk, L, V] in fp32; query i sees keys ``[0, visible[i])``,
    never fewer than query i - 1. Returns out f32 [n, H, V] and the natural log-sum-exp of the scaled scores f32 [n, H];
    a query that sees no key gets 0 and -inf. The result depends on this sequence alone.
    """
    kv_heads = k.shape[0]
    # [Hk, n, G, D]: the query heads of one KV head are rows of one matrix product, so K and V are never repeated.
    grouped = (q.float() * softmax_scale).unflatten(1, (kv_heads, -1)).permute(1, 0, 2, 3)
    step = max(1, min(_QUERIES, _SCORES // max(1, q.shape[1] * k.shape[1])))
    blocks = [_attend_block(grouped[:, i : i + step], k, v, visible[i : i + step]) for i in range(0, q.shape[0], step)]
    out, lse = (torch.cat(parts, 1).permute(1, 0, 2, *range(3, parts[0].ndim)) for parts in zip(*blocks, strict=True))
    return out.flatten(1, 2), lse.flatten(1, 2)


def _attend_block(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    first, last = visible[0], visible[-1]
    scores = q.flatten(1, 2) @ k[:, :last].transpose(1, 2)
    scores = scores.unflatten(1, q.shape[1:3])  # [Hk, n, G, L]
    if first != last:
        keys = torch.arange(first, last, device=q.device)
        hidden = keys >= torch.tensor(visible, device=q.device)[:, None]
        scores[..., first:].masked_fill_(hidden[:, None], -torch.inf)
    if not last:
        lse = scores.new_full(scores.shape[:-1], -torch.inf)
        return q.new_zeros((*q.shape[:-1], v.shape[-1])), lse
    most = scores.amax(-1, keepdim=True)
    most = most.masked_fill(most == -torch.inf, 0)
    weights = scores.sub_(most).exp_()
    total = weights.sum(-1, keepdim=True)
    out = (weights.flatten(1, 2) @ v[:, :last]).unflatten(1, q.shape[1:3])
    return out / total.masked_fill(total == 0, 1), (most + total.log()).squeeze(-1)


@dataclass(frozen=True)
class History:
    """The paged K and V of a batch: what is needed to read a sequence's rows in fp32."""

    pool: torch.Tensor
    page_table: torch.Tensor
    scales: tuple[torch.Tensor | None, torch.Tensor | None]
    encoding: str
    kv_heads: int
    dims: tuple[int, int]
    tokens_per_page: int

    def read(self, sequence: int, length: int) -> tuple[torch.Tensor, torch.Tensor, Callable[[int], int]]:
        """Held rows below ``length``: K f32 [Hk, L, D], V f32 [Hk, L, V], and how many of them lie below a position.

        Other bytes of the pages are dropped before they are decoded, so they can hold anything.
        """
        pages = self.page_table[sequence, : -(-length // self.tokens_per_page)].tolist()
        starts = list(accumulate((self._rows(page, i, length) for i, page in enumerate(pages)), initial=0))
        held = torch.tensor([page for page in pages if page >= 0], dtype=torch.int32, device=self.pool.device)
        layout = layout_of(self.encoding, (self.kv_heads,) * 2, self.dims, self.tokens_per_page)
        planes = read_rows(self.pool, held, layout, starts[-1])
        codec = CODECS[ENCODINGS[self.encoding].codec]
        k, v = (codec.decode(planes[i::2], scale) for i, scale in enumerate(self.scales))

        def held_below(position: int) -> int:
            page, offset = divmod(max(0, position), self.tokens_per_page)
            return min(starts[page] + offset, starts[min(page + 1, len(pages))])

        return k, v, held_below

    def _rows(self, page: int, index: int, length: int) -> int:
        return min(self.tokens_per_page, length - index * self.tokens_per_page) if page >= 0 else 0
