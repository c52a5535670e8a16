"""Reference of kvc::mla_context."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kvc.ops import transposed
from kvc.ops.attention import State, attend
from kvc.ops.codecs import MLA, fp8, row_fields, row_format
from kvc.ops.expand_mla.reference import expand_mla
from kvc.ops.history import History, Rows, with_twin
from kvc.ops.merge_states.reference import merge_states
from kvc.ops.retained import Retained


def mla_context(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    committed: torch.Tensor,
    query_starts: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    latent_scale: torch.Tensor | None,
    rope_scale: torch.Tensor | None,
    q_scale: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    twin: torch.Tensor | None = None,
    twin_table: torch.Tensor | None = None,
    latent_twin_scale: torch.Tensor | None = None,
    rope_twin_scale: torch.Tensor | None = None,
    *,
    encoding: str,
    tokens_per_page: int,
    chunk_tokens: int,
    softmax_scale: float,
    v_layout: str = "rows",
    twin_encoding: str | None = None,
    first: int = 0,
    last: int = 0,
    unit: str = "token",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of context tokens over their sequence's cached rows and this step's own rows (expanded MLA).

    q_nope [T, H, N], q_rope [T, H, R], k [T, H, N + R] after RoPE, v [T, H, V], or [H, V, T + 16 B] where ``v_layout``
    is `transposed` (kvc::expand_mla); sequence b owns tokens ``[query_starts[b], query_starts[b+1])``, i32 [B+1]. Rows
    ``[0, committed[b])``, i32 [B], are read from the pool uint8 [P, page_bytes] through page_table i32 [B, W] under
    latent_scale and rope_scale (f32 [2] or None), ``chunk_tokens`` at a time (whole pages): decoded, rounded to the
    activation dtype, expanded by w_uk [H, N, C] and w_uv [H, C, V], attended to, and the parts combined as
    kvc::merge_states does; rows on pages that are -1 take no part. softmax_scale multiplies the scores.
    With a twin (uint8 [Q, twin_bytes] in twin_encoding, scales of its own, twin_table i32 [B, W]) rows
    that are retained and held there are read from it instead, as kvc::overlay_retained_rows says (``first``, ``last``,
    ``unit``).
    The dtype of the weights is the activation dtype. Under q_scale, k_scale, v_scale (f32 [2] = [scale, factor]) Q, K
    and V, of own and of cached rows, are e4m3: operands in the activation dtype are encoded as kvc::quantize_fp8 does,
    those that are uint8 hold the codes already. Without k_scale and v_scale K and V stay in the activation dtype, and
    so does Q without q_scale, which needs the other two.
    Returns out [T, H, V] in the activation dtype and lse f32 [T, H], the natural log-sum-exp of the scaled scores;
    tokens from query_starts[-1] on are padding: out 0, lse -inf. All other arithmetic is fp32. A sequence's result does
    not depend on the other sequences of the batch.
    Errors: KVC551 shapes, strides and dtypes, KVC552 values out of range, KVC554 encoding or layout.
    Source: docs/semantics.md.
    """
    row = row_format("mla_context", encoding, row_fields(MLA, (1, 1), (w_uk.shape[2], q_rope.shape[2])))
    history = History(pool, page_table, row, (latent_scale, rope_scale), tokens_per_page)
    retained, scales = Retained(first, last, unit, tokens_per_page), (latent_twin_scale, rope_twin_scale)
    rows = with_twin(history, twin, twin_table, committed, scales, twin_encoding, retained)
    cached = ExpandedRows(rows, (w_uk, w_uv), (k_scale, v_scale), chunk_tokens)
    return attend_after(cached, (q_nope, q_rope), k, v, committed, query_starts, q_scale, softmax_scale, v_layout)


def attend_after(
    cached_rows: "ExpandedRows",
    queries: tuple[torch.Tensor, torch.Tensor],
    k: torch.Tensor,
    v: torch.Tensor,
    committed: torch.Tensor,
    query_starts: torch.Tensor,
    q_scale: torch.Tensor | None,
    softmax_scale: float,
    v_layout: str,
) -> State:
    """Attention of own rows over themselves and the cached ones; operands and results as those of kvc::mla_context."""
    w_uv, (k_scale, v_scale) = cached_rows.weights[1], cached_rows.scales
    out = w_uv.new_zeros((*queries[0].shape[:2], w_uv.shape[2]))
    lse = w_uv.new_full(queries[0].shape[:2], -torch.inf, dtype=torch.float32)
    starts = query_starts.tolist()
    for b, (cached, start, end) in enumerate(zip(committed.tolist(), starts[:-1], starts[1:], strict=True)):
        if start == end:
            continue
        own = slice(start, end)
        q = torch.cat([_values(x[own], q_scale) for x in queries], -1)
        own_v = v[own].transpose(0, 1) if v_layout == "rows" else _columns(v, starts, b)
        keys, values = _values(k[own], k_scale).transpose(0, 1), _values(own_v, v_scale)
        parts = [attend(q, keys, values, list(range(1, end - start + 1)), softmax_scale)]
        for keys, values in cached_rows.chunks(b, cached):
            parts.append(attend(q, keys, values, [keys.shape[1]] * (end - start), softmax_scale))
        out[own], lse[own] = _merged(parts)
    return out, lse


@dataclass(frozen=True)
class ExpandedRows:
    """The cached rows of a batch, expanded to K and V by the weights W_UK and W_UV, under the scales of K and V."""

    rows: Rows
    weights: tuple[torch.Tensor, torch.Tensor]
    scales: tuple[torch.Tensor | None, torch.Tensor | None]
    chunk_tokens: int

    def chunks(self, sequence: int, cached: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """K f32 [H, L, N + R] and V f32 [H, L, V] of every chunk that holds a row."""
        for start in range(0, cached, self.chunk_tokens):
            rows, _ = self.rows.read(sequence, start, min(start + self.chunk_tokens, cached))
            if rows[0].shape[1]:
                yield self._expanded(*(x.transpose(0, 1).to(self.weights[0].dtype) for x in rows))

    def _expanded(self, latent: torch.Tensor, rope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        k, v = expand_mla(latent, rope, *self.weights, None, *self.scales)
        return _values(k, self.scales[0]).transpose(0, 1), _values(v, self.scales[1]).transpose(0, 1)


def _columns(v: torch.Tensor, starts: list[int], sequence: int) -> torch.Tensor:
    """A sequence's own V [H, n, V] from the transposed one."""
    column, tokens = transposed.starts(starts)[sequence], starts[sequence + 1] - starts[sequence]
    return v[:, :, column : column + tokens].transpose(1, 2)


def _values(x: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """What takes part in fp32: the value as it is, or what its codes under the scale stand for."""
    if scale is None:
        return x.float()
    return fp8.decode((x,) if x.dtype == torch.uint8 else fp8.encode(x, scale), scale)


def _merged(parts: list[State]) -> State:
    if len(parts) == 1:
        return parts[0]
    outs, lses = zip(*parts, strict=True)
    return merge_states(torch.stack(outs), torch.stack(lses))
