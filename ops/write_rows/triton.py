"""kvc::write_rows in Triton."""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def _write_rows(
    page_table,
    positions,
    sequence_ids,
    rows,
    stride_b,
    stride_w,
    stride_position,
    stride_sequence,
    tokens,
    sequences,
    width,
    TOKENS_PER_PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = token < tokens
    sequence = tl.load(sequence_ids + token.to(tl.int64) * stride_sequence, mask=inside, other=-1)
    position = tl.load(positions + token.to(tl.int64) * stride_position, mask=inside, other=0)
    index = position // TOKENS_PER_PAGE
    held = (sequence >= 0) & (sequence < sequences) & (position >= 0) & (index < width)
    page = tl.load(page_table + sequence.to(tl.int64) * stride_b + index * stride_w, mask=held, other=-1)
    row = page * TOKENS_PER_PAGE + position % TOKENS_PER_PAGE
    tl.store(rows + token, tl.where(page < 0, -1, row), mask=inside)


def write_rows(
    page_table: torch.Tensor, positions: torch.Tensor, sequence_ids: torch.Tensor, *, tokens_per_page: int
) -> torch.Tensor:
    """As the reference; a token outside the table writes nothing."""
    rows = positions.new_empty(positions.shape)
    if rows.numel():
        _write_rows[(triton.cdiv(rows.shape[0], BLOCK),)](
            page_table,
            positions,
            sequence_ids,
            rows,
            *page_table.stride(),
            positions.stride(0),
            sequence_ids.stride(0),
            rows.shape[0],
            *page_table.shape,
            tokens_per_page,
            BLOCK,
            num_warps=4,
        )
    return rows
