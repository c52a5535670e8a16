"""Reference of kvc::correct_lengths."""

import torch


def correct_lengths(
    committed: torch.Tensor, scheduled: torch.Tensor, accepted_rows: torch.Tensor, accepted: torch.Tensor
) -> torch.Tensor:
    """Committed lengths, corrected by what the step in flight accepted.

    committed i32 [B]: as if all of its tokens were accepted; scheduled i32 [B]: the tokens of each sequence in it, 0
    where it was not in it; accepted_rows i32 [B]: the row of a sequence in accepted, -1 where it was not in it;
    accepted i32 [A]: accepted tokens of each sequence of the step in flight, in its order.
    Returns i32 [B] = ``committed + accepted[accepted_rows] - scheduled``, ``committed`` where the row is -1.
    Errors: KVC551 shapes and dtypes, KVC552 a row that does not exist, more accepted than scheduled, a length below 0.
    Source: docs/semantics.md.
    """
    if not accepted.shape[0]:
        return committed.clone()
    change = accepted.index_select(0, accepted_rows.clamp(min=0)) - scheduled
    return committed + change.masked_fill(accepted_rows < 0, 0)
