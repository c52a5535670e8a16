"""Reference of kvc::step_positions."""

import torch


def step_positions(
    committed: torch.Tensor, query_starts: torch.Tensor, sequence_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The position of every token of a step and the length of every sequence after it.

    committed i32 [B]: tokens stored and accepted before this step; query_starts i32 [B+1]: the first token of each
    sequence in T, and the end; sequence_ids i32 [T], -1 for padding.
    Returns positions i32 [T] = ``committed[s] + t - query_starts[s]``, 0 for padding, and lengths i32 [B] =
    ``committed + query_starts[1:] - query_starts[:-1]``.
    Errors: KVC551 shapes and dtypes, KVC552 a sequence that does not exist. Source: docs/semantics.md.
    """
    lengths = committed + query_starts[1:] - query_starts[:-1]
    if not committed.shape[0]:
        return torch.zeros_like(sequence_ids), lengths
    first = (committed - query_starts[:-1]).index_select(0, sequence_ids.clamp(min=0))
    token = torch.arange(sequence_ids.shape[0], dtype=torch.int32, device=sequence_ids.device)
    return (first + token).masked_fill(sequence_ids < 0, 0), lengths
