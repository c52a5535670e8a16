"""kvc::correct_lengths in Triton."""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def _correct(
    committed,
    scheduled,
    accepted_rows,
    accepted,
    corrected,
    stride_committed,
    stride_scheduled,
    stride_row,
    stride_accepted,
    sequences,
    counts,
    BLOCK: tl.constexpr,
):
    sequence = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = sequence < sequences
    length = tl.load(committed + sequence * stride_committed, mask=inside)
    row = tl.load(accepted_rows + sequence * stride_row, mask=inside, other=-1)
    known = (row >= 0) & (row < counts)
    change = tl.load(accepted + row * stride_accepted, mask=known, other=0)
    change -= tl.load(scheduled + sequence * stride_scheduled, mask=known, other=0)
    tl.store(corrected + sequence, length + change, mask=inside)


def correct_lengths(
    committed: torch.Tensor, scheduled: torch.Tensor, accepted_rows: torch.Tensor, accepted: torch.Tensor
) -> torch.Tensor:
    """As the reference."""
    corrected = committed.new_empty(committed.shape)
    if corrected.numel():
        _correct[(triton.cdiv(corrected.shape[0], BLOCK),)](
            committed,
            scheduled,
            accepted_rows,
            accepted,
            corrected,
            committed.stride(0),
            scheduled.stride(0),
            accepted_rows.stride(0),
            accepted.stride(0),
            corrected.shape[0],
            accepted.shape[0],
            BLOCK,
            num_warps=4,
        )
    return corrected
