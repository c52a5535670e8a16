"""kvc::mla_sparse in Triton: a program takes a token, a tile of heads and a split of the entries it selects.

Keys are the long side of every product, as in `kvc.ops.device.decode`; codes take part as fp16 numbers, their scale
multiplies scores and outputs.
"""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl

from kvc.ops.device.decode import in_line
from kvc.ops.device.paging import page_of
from kvc.ops.device.splits import merge, partials, split_bounds, split_count
from kvc.ops.device.tiles import halves, load_dense, load_queries, mode_of_dense, product

LOG2_E = tl.constexpr(1.4426950408889634)
LEAST_HEADS, MOST_HEADS = 16, 64  # of a tile
ENTRIES = 64


@triton.jit
def _operands(pointer, start, counts, CODES: tl.constexpr, MODE: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr):
    rows = load_dense(pointer, start, counts, DIM, PADDED)
    if CODES:
        rows = rows.to(tl.float8e4nv, bitcast=True)
    if MODE == "split" or MODE == "ieee":
        rows = rows.to(tl.float32)
    return halves(rows, MODE)


@triton.jit
def _sparse(
    q_latent,
    q_rope,
    latent,
    rope,
    selected,
    positions,
    sequence_ids,
    page_table,
    row_scale,
    parts,
    part_lse,
    latent_token,
    latent_head,
    rope_token,
    rope_head,
    latent_outer,
    latent_row,
    rope_outer,
    rope_row,
    selected_token,
    table_stride,
    table_step,
    tokens,
    batch,
    width,
    count,
    softmax_scale,
    HEADS: tl.constexpr,
    TILES: tl.constexpr,
    C: tl.constexpr,
    C_PADDED: tl.constexpr,
    R: tl.constexpr,
    R_PADDED: tl.constexpr,
    CODES: tl.constexpr,
    OF_SELECTION: tl.constexpr,
    MODE: tl.constexpr,
    S: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    SPLITS: tl.constexpr,
):
    token = (tl.program_id(0) // TILES).to(tl.int64)
    head = tl.program_id(0) % TILES * M + tl.arange(0, M)
    asked = head < HEADS
    sequence = tl.load(sequence_ids + token).to(tl.int64)
    own = tl.load(positions + token)
    known = (sequence >= 0) & (sequence < batch)
    a, a_low, a_scale = load_queries(q_latent, token * latent_token + head * latent_head, asked, MODE, C, C_PADDED)
    b, b_low, b_scale = load_queries(q_rope, token * rope_token + head * rope_head, asked, MODE, R, R_PADDED)
    unit = tl.load(row_scale) if CODES else 1.0
    factor = unit * softmax_scale * LOG2_E
    start, stop = split_bounds(count, tl.program_id(1), SPLITS, N)
    most = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([C_PADDED, M], tl.float32)
    nothing = tl.zeros([N, M], tl.float32)
    for first in range(start, stop, N):
        entry = first + tl.arange(0, N)
        position = tl.load(selected + token * selected_token + entry, mask=entry < stop, other=-1)
        wanted = known & (position >= 0) & (position <= own)
        counts = page_of(page_table + sequence * table_stride, position, table_step, width, wanted, S) >= 0
        row = entry.to(tl.int64) if OF_SELECTION else position.to(tl.int64)
        outer = token if OF_SELECTION else sequence
        x, x_low = _operands(latent, outer * latent_outer + row * latent_row, counts, CODES, MODE, C, C_PADDED)
        y, y_low = _operands(rope, outer * rope_outer + row * rope_row, counts, CODES, MODE, R, R_PADDED)
        scores = product(x, x_low, a, a_low, nothing, MODE) * (a_scale * factor)[None, :]
        scores += product(y, y_low, b, b_low, nothing, MODE) * (b_scale * factor)[None, :]
        scores = tl.where(counts[:, None], scores, float("-inf"))
        highest = tl.maximum(most, tl.max(scores, 0))
        safe = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp2(scores - safe[None, :])
        kept = tl.exp2(most - safe)
        p, p_low = halves(weights, "split" if MODE == "bf16" else MODE)
        acc = product(tl.trans(x), tl.trans(x_low), p, p_low, acc * kept[None, :], MODE)
        total = total * kept + tl.sum(weights, 0)
        most = highest
    empty = most == float("-inf")
    divisor = tl.where(empty, 1.0, total)
    place = (tl.program_id(1).to(tl.int64) * tokens + token) * HEADS + head
    column = tl.arange(0, C_PADDED)
    out = acc * (unit / divisor)[None, :]
    inside = asked[None, :] & (column < C)[:, None]
    tl.store(parts + place[None, :] * C + column[:, None], out.to(parts.dtype.element_ty), mask=inside)
    tl.store(part_lse + place, tl.where(empty, most, (most + tl.log2(divisor)) / LOG2_E), mask=asked)


def mla_sparse(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent: torch.Tensor,
    rope: torch.Tensor,
    selected: torch.Tensor,
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    page_table: torch.Tensor,
    row_scale: torch.Tensor | None,
    *,
    rows_of: str,
    tokens_per_page: int,
    softmax_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference."""
    (tokens, heads, width), count = q_latent.shape, selected.shape[1]
    out = q_latent.new_zeros(q_latent.shape)
    lse = q_latent.new_full((tokens, heads), float("-inf"), dtype=torch.float32)
    if not (tokens and page_table.numel()):
        return out, lse
    q_latent, q_rope, latent, rope, selected = map(in_line, (q_latent, q_rope, latent, rope, selected))
    mode = _mode(latent, q_latent)
    tile = min(MOST_HEADS, max(LEAST_HEADS, triton.next_power_of_2(heads)))
    tile = tile if mode == "codes" else LEAST_HEADS
    tiles = triton.cdiv(heads, tile)
    splits = split_count(tokens * tiles, count)
    parts, part_lse = partials(out, lse, splits)
    _sparse[(tokens * tiles, splits)](
        q_latent,
        q_rope,
        latent,
        rope,
        selected,
        positions.contiguous(),
        sequence_ids.contiguous(),
        page_table,
        row_scale,
        parts,
        part_lse,
        *q_latent.stride()[:2],
        *q_rope.stride()[:2],
        *latent.stride()[:2],
        *rope.stride()[:2],
        selected.stride(0),
        *page_table.stride(),
        tokens,
        *page_table.shape,
        count,
        softmax_scale,
        heads,
        tiles,
        width,
        max(16, triton.next_power_of_2(width)),
        q_rope.shape[2],
        max(16, triton.next_power_of_2(q_rope.shape[2])),
        row_scale is not None,
        rows_of == "selection",
        mode,
        tokens_per_page,
        tile,
        ENTRIES if mode in ("codes", "bf16") else ENTRIES // 2,
        splits,
        num_warps=8 if width >= 256 else 4,
        num_stages=2,
    )
    merge(parts, part_lse, out, lse)
    return out, lse


def _mode(rows: torch.Tensor, q: torch.Tensor) -> str:
    activations = str(q.dtype).removeprefix("torch.")
    if rows.dtype == torch.uint8:
        return "ieee" if q.dtype == torch.float32 else "codes"
    return mode_of_dense(str(rows.dtype).removeprefix("torch."), activations)
