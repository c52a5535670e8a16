"""Reference of kvc::merge_states."""

import torch


def merge_states(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Combine N partial attention outputs over disjoint keys into the output over all of them.

    out [N, T, H, V] in an activation dtype; lse f32 [N, T, H], the natural log-sum-exp of each part's scaled scores,
    -inf for a part without keys, which then contributes nothing whatever its out holds.
    Returns out [T, H, V] in the dtype given and lse f32 [T, H]; where all parts are empty, or N is 0, 0 and -inf.
    In fp32: ``out = sum(exp(lse_i - max) * out_i) / sum(exp(lse_i - max))``.
    Errors: KVC551 shapes and dtypes. Source: docs/semantics.md.
    """
    if not out.shape[0]:
        return out.new_zeros(out.shape[1:]), lse.new_full(lse.shape[1:], -torch.inf)
    most = lse.amax(0)
    most = most.masked_fill(most == -torch.inf, 0)
    weights = (lse - most).exp()
    total = weights.sum(0)
    parts = out.float().masked_fill((lse == -torch.inf)[..., None], 0) * weights[..., None]
    merged = parts.sum(0) / total.masked_fill(total == 0, 1)[..., None]
    return merged.to(out.dtype), most + total.log()
