"""kvc::merge_states in Triton: one pass over the parts, which are read once."""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl

ELEMENTS = 4096  # of a tile: rows of [T, H] times features


@triton.jit
def _merge(
    out,
    lse,
    merged,
    merged_lse,
    stride_n,
    stride_t,
    stride_h,
    lse_stride_n,
    lse_stride_t,
    lse_stride_h,
    parts,
    rows,
    heads,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    feature = tl.arange(0, PADDED)
    inside = row < rows
    token, head = row // heads, row % heads
    values = out + (token * stride_t + head * stride_h)[:, None] + feature[None, :]
    sums = lse + token * lse_stride_t + head * lse_stride_h
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, PADDED], tl.float32)
    for part in range(parts):
        found = tl.load(sums + part * lse_stride_n, mask=inside, other=float("-inf"))
        counts = inside & (found != float("-inf"))
        # What a part without keys holds may be anything: it is not read.
        mask = counts[:, None] & (feature < WIDTH)[None, :]
        x = tl.load(values + part * stride_n, mask=mask, other=0.0).to(tl.float32)
        highest = tl.maximum(most, found, propagate_nan=tl.PropagateNan.ALL)
        base = tl.where(highest == float("-inf"), 0.0, highest)
        old, new = tl.exp(most - base), tl.where(counts, tl.exp(found - base), 0.0)
        acc = acc * old[:, None] + x * new[:, None]
        total = total * old + new
        most = highest
    empty = most == float("-inf")
    acc = acc / tl.where(empty, 1.0, total)[:, None]
    mask = inside[:, None] & (feature < WIDTH)[None, :]
    tl.store(merged + row[:, None] * WIDTH + feature[None, :], acc.to(merged.dtype.element_ty), mask=mask)
    tl.store(merged_lse + row, tl.where(empty, most, most + tl.log(tl.where(empty, 1.0, total))), mask=inside)


def merge_states(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference, the maximum being found on the way."""
    parts, tokens, heads, width = out.shape
    out = out if out.stride(3) == 1 or width == 1 else out.contiguous()
    merged, merged_lse = out.new_empty((tokens, heads, width)), lse.new_empty((tokens, heads))
    if merged_lse.numel():
        padded = triton.next_power_of_2(max(1, width))
        rows = max(1, min(16, ELEMENTS // padded))
        _merge[(triton.cdiv(tokens * heads, rows),)](
            out,
            lse,
            merged,
            merged_lse,
            *out.stride()[:3],
            *lse.stride(),
            parts,
            tokens * heads,
            heads,
            width,
            padded,
            rows,
            num_warps=4,
        )
    return merged, merged_lse
