"""kvc::project_heads in Triton: a product a head, summed in fp32 and rounded once."""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl

from kvc.ops.device.numbers import rounded

COLUMNS, INNER = 64, 64
MOST_TOKENS = 64  # of a tile


@triton.jit
def _project(
    x,
    w,
    out,
    x_token,
    x_head,
    x_feature,
    w_head,
    w_row,
    w_column,
    tokens,
    heads,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    token = tl.program_id(0) // tl.cdiv(COLUMNS, N) * M + tl.arange(0, M)
    column = tl.program_id(0) % tl.cdiv(COLUMNS, N) * N + tl.arange(0, N)
    acc = tl.zeros([M, N], tl.float32)
    for start in range(0, ROWS, K):
        row = start + tl.arange(0, K)
        inside = (token < tokens)[:, None] & (row < ROWS)[None, :]
        place = token.to(tl.int64)[:, None] * x_token + row[None, :] * x_feature
        a = tl.load(x + head * x_head + place, mask=inside, other=0)
        place = row[:, None] * w_row + column[None, :] * w_column
        b = tl.load(w + head * w_head + place, mask=(row < ROWS)[:, None] & (column < COLUMNS)[None, :], other=0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    place = (token.to(tl.int64) * heads + head)[:, None] * COLUMNS + column[None, :]
    inside = (token < tokens)[:, None] & (column < COLUMNS)[None, :]
    tl.store(out + place, rounded(acc, out.dtype.element_ty), mask=inside)


def project_heads(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """As the reference."""
    (tokens, heads, rows), columns = x.shape, w.shape[2]
    out = x.new_empty((tokens, heads, columns))
    if out.numel():
        tile = min(MOST_TOKENS, max(16, triton.next_power_of_2(tokens)))
        grid = triton.cdiv(tokens, tile) * triton.cdiv(columns, COLUMNS), heads
        precision = "ieee" if x.dtype == torch.float32 else "tf32"
        sizes = rows, columns, tile, COLUMNS, INNER, precision
        _project[grid](x, w, out, *x.stride(), *w.stride(), tokens, heads, *sizes, num_warps=4, num_stages=3)
    return out
