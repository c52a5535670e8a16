"""Split-KV: the rows of a sequence are read by several programs, whose partial results are merged afterwards.

A kernel takes ``parts, part_lse = partials(out, lse, splits)``, program `split` of a sequence reads the rows of
`split_bounds` and stores its output and natural log-sum-exp at ``parts[split]`` and ``part_lse[split]`` (`finished`
makes both of running sums; without rows only -inf need be stored), and ``merge(parts, part_lse, out, lse)`` comes last.
"""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl

SLOTS = 264  # programs that an H200 holds at once: two on each of its 132 SMs
LEAST = 256  # tokens of a split: fewer are not worth a partial result
MOST = 64  # splits: what a program of the merge holds at once
_ELEMENTS = 4096  # of a tile of the merge
_LOG2_E = tl.constexpr(1.4426950408889634)
_LN_2 = tl.constexpr(0.6931471805599453)


def split_count(programs: int, tokens: int, slots: int = SLOTS, least: int = LEAST) -> int:
    """Splits of a sequence: as many as fill the device once, of ``least`` tokens or more where it has that many.

    ``programs`` are those of an unsplit grid, ``tokens`` the most a sequence can have (width of the table times tokens
    a page). Follows from shapes alone, so a captured graph keeps it.
    """
    return max(1, min(slots // max(1, programs), -(-tokens // least), MOST))


def partials(out: torch.Tensor, lse: torch.Tensor, splits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where splits store: f32 ``[splits, *out.shape]`` and ``[splits, *lse.shape]``; the results themselves for one."""
    if splits == 1:
        return out[None], lse[None]
    return out.new_empty((splits, *out.shape), dtype=torch.float32), lse.new_empty((splits, *lse.shape))


@triton.jit
def split_bounds(length, split, splits, BLOCK: tl.constexpr):
    """Rows ``[start, stop)`` of a split: whole blocks, the last one cut off at the length; empty for the last ones."""
    rows = tl.cdiv(tl.cdiv(length, splits), BLOCK) * BLOCK
    start = split * rows
    return tl.minimum(start, length), tl.minimum(start + rows, length)


@triton.jit
def finished(acc, most, total):
    """Output and natural log-sum-exp of running sums: acc ``[M, V]``, most (base 2) and total ``[M]``.

    A row that saw nothing (most -inf) gets 0 and -inf.
    """
    empty = most == float("-inf")
    safe = tl.where(empty, 1.0, total)
    out = tl.where(empty[:, None], 0.0, acc / safe[:, None])
    return out, tl.where(empty, float("-inf"), (most + tl.log2(safe)) * _LN_2)


@triton.jit
def _merge_splits(
    parts, part_lse, out, lse, rows, splits, WIDTH: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    split, feature = tl.arange(0, SPLITS), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(part_lse + split * rows + row, mask=split < splits, other=float("-inf")) * _LOG2_E
    counts = found != float("-inf")
    most = tl.max(found, 0)
    weight = tl.where(counts, tl.exp2(found - most), 0.0)
    total = tl.sum(weight, 0)
    empty = total == 0.0
    safe = tl.where(empty, 1.0, total)
    # What a split without rows holds may be anything: it is not read.
    mask = counts[:, None] & (feature < WIDTH)[None, :]
    x = tl.load(parts + (split * rows + row)[:, None] * WIDTH + feature[None, :], mask=mask, other=0.0)
    merged = tl.sum(x * weight[:, None], 0) / safe
    tl.store(out + row * WIDTH + feature, merged.to(out.dtype.element_ty), mask=feature < WIDTH)
    if tl.program_id(1) == 0:
        tl.store(lse + row, tl.where(empty, float("-inf"), (most + tl.log2(safe)) * _LN_2))


def merge(parts: torch.Tensor, part_lse: torch.Tensor, out: torch.Tensor, lse: torch.Tensor) -> None:
    """Partial results into ``out [..., V]`` and ``lse [...]``, both contiguous; nothing to do for one split."""
    splits, rows, width = parts.shape[0], lse.numel(), out.shape[-1]
    if splits == 1 or rows == 0:
        return
    padded = triton.next_power_of_2(splits)
    block = min(triton.next_power_of_2(width), _ELEMENTS // padded)
    grid = rows, triton.cdiv(width, block)
    _merge_splits[grid](parts, part_lse, out, lse, rows, splits, width, padded, block, num_warps=4 if padded > 2 else 2)
