"""Reference of kvc::rope."""

import torch


def rope(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, *, layout: str) -> torch.Tensor:
    """Rotary embedding of the first R features of every head; the rest pass.

    x [T, H, D] bf16, fp16 or fp32; table f32 [M, R] = [cos | sin], R/2 each, R even and at most D; positions i32 [T],
    rows of the table. ``layout`` pairs feature i with i + R/2 (`half`) or 2i with 2i + 1 (`interleaved`).
    Returns [T, H, D] in x's dtype. In fp32: ``a' = a*cos - b*sin``, ``b' = b*cos + a*sin``, every product and the sum
    rounded (no fused multiply-add), then rounded to x's dtype.
    Errors: KVC551 shapes and dtypes, KVC552 position outside the table, KVC554 layout. Source: docs/semantics.md.
    """
    width = table.shape[1]
    cos, sin = table.index_select(0, positions)[:, None].chunk(2, -1)
    pair = -1 if layout == "interleaved" else -2
    a, b = x[..., :width].float().unflatten(-1, (-1, 2) if pair == -1 else (2, -1)).unbind(pair)
    turned = torch.stack((a * cos - b * sin, b * cos + a * sin), pair).flatten(-2).to(x.dtype)
    return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), -1)


def rotated_copy(
    x: torch.Tensor, table: torch.Tensor | None, positions: torch.Tensor | None, layout: str | None
) -> torch.Tensor:
    """``x`` with positions encoded; a copy without a table, since results of an op are never its arguments."""
    if table is None or positions is None or layout is None:
        return x.clone()
    return rope(x, table, positions, layout=layout)
