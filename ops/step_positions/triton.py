"""kvc::step_positions in Triton: positions and lengths in one launch."""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def _step_positions(
    committed,
    query_starts,
    sequence_ids,
    positions,
    lengths,
    stride_committed,
    stride_start,
    stride_sequence,
    tokens,
    sequences,
    BLOCK: tl.constexpr,
):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sequence = tl.load(sequence_ids + index.to(tl.int64) * stride_sequence, mask=index < tokens, other=-1)
    own = (sequence >= 0) & (sequence < sequences)
    before = tl.load(committed + sequence * stride_committed, mask=own, other=0)
    first = tl.load(query_starts + sequence * stride_start, mask=own, other=0)
    tl.store(positions + index, tl.where(own, before - first + index, 0), mask=index < tokens)
    known = index < sequences
    length = tl.load(committed + index * stride_committed, mask=known)
    length += tl.load(query_starts + (index + 1) * stride_start, mask=known)
    length -= tl.load(query_starts + index * stride_start, mask=known)
    tl.store(lengths + index, length, mask=known)


def step_positions(
    committed: torch.Tensor, query_starts: torch.Tensor, sequence_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference."""
    tokens, sequences = sequence_ids.shape[0], committed.shape[0]
    positions, lengths = sequence_ids.new_empty(tokens), committed.new_empty(sequences)
    if tokens or sequences:
        _step_positions[(triton.cdiv(max(tokens, sequences), BLOCK),)](
            committed,
            query_starts,
            sequence_ids,
            positions,
            lengths,
            committed.stride(0),
            query_starts.stride(0),
            sequence_ids.stride(0),
            tokens,
            sequences,
            BLOCK,
            num_warps=4,
        )
    return positions, lengths
