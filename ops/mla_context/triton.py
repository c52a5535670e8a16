"""kvc::mla_context in Triton: own rows in one launch; cached ones expanded a chunk at a time, then merged.

How many chunks there are depends on lengths, so a step that has a cache waits once for them.
"""

# mypy: ignore-errors
from collections.abc import Iterator

import torch

from kvc.encodings import Field
from kvc.ops import transposed
from kvc.ops.codecs import CODECS, MLA, row_fields
from kvc.ops.device.context import Own, attend
from kvc.ops.device.decode import Gathered, in_line
from kvc.ops.device.encode import encode
from kvc.ops.device.gather import Kept, Selection, Source, gather
from kvc.ops.expand_mla.triton import expand_mla
from kvc.ops.merge_states.triton import merge_states
from kvc.ops.mla_context import triton_fp8

State = tuple[torch.Tensor, torch.Tensor]


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
) -> State:
    """As the reference."""
    history = Source(pool, page_table, encoding, (latent_scale, rope_scale))
    high = None if twin is None else Source(twin, twin_table, twin_encoding, (latent_twin_scale, rope_twin_scale))
    kept = None if twin is None else Kept(committed, first, last, unit)
    fields = row_fields(MLA, (1, 1), (w_uk.shape[2], q_rope.shape[2]))

    def rows(sequence: int, start: int, stop: int) -> Gathered:
        """Latent and rope of cached positions in the activation dtype, ``[1, n, 1, dim]`` each."""
        positions = torch.arange(start, stop, dtype=torch.int32, device=pool.device)[None]
        selection = Selection(positions, torch.full((1,), sequence, dtype=torch.int32, device=pool.device))
        outs = [w_uk.new_empty((1, stop - start, 1, field.dim)) for field in fields]
        how = {"kept": kept, "selection": selection}
        gather("mla_context", fields, outs, history, high, committed, tokens_per_page, **how)
        return Gathered(outs, page_table[sequence : sequence + 1, start // tokens_per_page :])

    scales = q_scale, k_scale, v_scale
    own = k, v, v_layout
    step = committed, query_starts, tokens_per_page, chunk_tokens, softmax_scale
    return attend_after(rows, (q_nope, q_rope), own, (w_uk, w_uv), scales, *step)


def attend_after(rows, queries, own, weights, scales, committed, query_starts, tokens_per_page, chunk, softmax_scale):
    """Attention over own rows and then over what ``rows(sequence, start, stop)`` gives of the cached ones."""
    dtype = weights[0].dtype
    whole = _attend_own(queries, own, scales, query_starts, tokens_per_page, softmax_scale, dtype)
    lengths = committed.tolist()
    if not any(lengths):
        return whole
    starts = query_starts.tolist()
    out, lse = whole
    q = _numbers_of_queries(queries, scales[0], dtype)
    for sequence, (cached, start, stop) in enumerate(zip(lengths, starts[:-1], starts[1:], strict=True)):
        if cached and stop > start:
            mine = slice(start, stop)
            parts = [(out[mine].float(), lse[mine])]
            chunks = _chunks(rows, weights, scales[1:], sequence, cached, chunk)
            parts += [_attend_chunk(q[mine], one, scales, tokens_per_page, softmax_scale) for one in chunks]
            merged, lse[mine] = merge_states(torch.stack([o for o, _ in parts]), torch.stack([x for _, x in parts]))
            out[mine] = merged.to(dtype)
    return out, lse


def _attend_own(queries, own, scales, query_starts, tokens_per_page, softmax_scale, dtype) -> State:
    k, v, v_layout = own
    widths = queries[0].shape[2], queries[1].shape[2], v.shape[1] if v_layout == "transposed" else v.shape[2]
    if None not in scales and v_layout == "transposed" and widths == triton_fp8.WIDTHS:
        codes = [_codes(x, scales[0]) for x in queries]
        keys, values = _codes(k, scales[1]), _codes(v, scales[2])
        return triton_fp8.own_rows(*codes, keys, values, query_starts, scales, softmax_scale, dtype)
    q = _numbers_of_queries(queries, scales[0], dtype)
    if v_layout == "transposed":
        v = _rows_of(v, query_starts, k.shape[0])
    rows = Own(_numbers(k, scales[1], dtype), _numbers(v, scales[2], dtype), scales[1:])
    fields = _fields(k.shape[1], k.shape[2], v.shape[2])
    none = torch.zeros_like(query_starts[1:])
    step = none, query_starts, tokens_per_page, softmax_scale, dtype
    return attend("mla_context", q, fields, rows, None, *step, q_scale=scales[0])


def _chunks(rows, weights, scales, sequence, cached, size) -> Iterator[tuple[Gathered, int]]:
    """K and V of every chunk of a sequence's cached rows, and how many rows it has."""
    for start in range(0, cached, size):
        stop = min(start + size, cached)
        found = rows(sequence, start, stop)
        k, v = expand_mla(*(x[0] for x in found.rows), *weights, None, *scales)
        numbers = [_numbers(x, scale, weights[0].dtype)[None] for x, scale in zip((k, v), scales, strict=True)]
        yield Gathered(numbers, found.table, scales), stop - start


def _attend_chunk(q, chunk, scales, tokens_per_page, softmax_scale) -> State:
    gathered, count = chunk
    k, v = gathered.rows
    fields = _fields(k.shape[2], k.shape[3], v.shape[3])
    both = torch.arange(2, dtype=torch.int32, device=q.device)
    step = both[1:] * count, both * len(q), tokens_per_page, softmax_scale, torch.float32
    return attend("mla_context", q, fields, None, gathered, *step, q_scale=scales[0])


def _fields(heads: int, width: int, v_width: int) -> tuple[Field, Field]:
    return Field("k", heads, width), Field("v", heads, v_width)


def _codes(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """e4m3 codes of values, features side by side."""
    return in_line(x) if x.dtype == torch.uint8 else encode(x, CODECS["fp8"], scale)[1][0]


def _numbers(x: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """What takes part in products: the values, or what their codes are before the scale, exact in fp16."""
    if scale is None:
        return x
    exact = torch.float32 if dtype == torch.float32 else torch.float16
    return _codes(x, scale).view(torch.float8_e4m3fn).to(exact)


def _numbers_of_queries(queries, scale, dtype) -> torch.Tensor:
    return torch.cat([_numbers(x, scale, dtype) for x in queries], -1)


def _rows_of(v: torch.Tensor, query_starts: torch.Tensor, tokens: int) -> torch.Tensor:
    """V [T, H, V] of a transposed one [H, V, columns]."""
    token = torch.arange(tokens, dtype=torch.int32, device=v.device)
    counts = query_starts.diff()
    aligned = (counts + transposed.ALIGNMENT - 1) // transposed.ALIGNMENT * transposed.ALIGNMENT
    sequence = (token[:, None] >= query_starts[None, 1:]).sum(1).clamp(max=len(counts) - 1)
    column = (aligned.cumsum(0) - aligned)[sequence] + token - query_starts[sequence]
    return v.permute(2, 0, 1)[column.clamp(0, v.shape[2] - 1)]
