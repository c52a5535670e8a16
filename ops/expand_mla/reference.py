"""Reference of kvc::expand_mla."""

import torch

from kvc.ops import transposed
from kvc.ops.codecs import fp8


def expand_mla(
    latent: torch.Tensor,
    rope: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    query_starts: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    *,
    v_layout: str = "rows",
) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of every head from latent rows.

    latent [T, 1, C], rope [T, 1, R] (rotated), w_uk [H, N, C], w_uv [H, C, V], all of one activation dtype. Products
    are summed in fp32 and rounded to that dtype; under scales f32 [2] = [scale, factor], both or neither, the rounded
    values are then encoded as kvc::quantize_fp8 does.
    Returns k [T, H, N + R] = [latent @ w_uk of the head | rope] and v, in the activation dtype, or e4m3 codes as uint8.
    ``v_layout`` `rows`: v is [T, H, V]. `transposed`: v is [H, V, T + 16 B], sequence b (tokens
    ``[query_starts[b], query_starts[b+1])``, i32 [B+1]) from the column on that is the sum of the lengths before it,
    each rounded up to 16; columns of no token are 0, rows start at multiples of 16 elements.
    Errors: KVC551 shapes and dtypes, KVC552 query_starts, KVC554 layout. Source: docs/semantics.md.
    """
    k_nope, v = _of_heads(latent, w_uk.transpose(1, 2)), _of_heads(latent, w_uv)
    k = torch.cat((k_nope, rope.expand(-1, w_uk.shape[0], -1)), -1)
    if k_scale is not None:
        k, v = fp8.encode(k, k_scale)[0], fp8.encode(v, v_scale)[0]
    return k, v if query_starts is None else _transpose(v, query_starts.tolist())


def _of_heads(latent: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """latent [T, 1, C] by w [H, C, X] -> [T, H, X], one product for all heads."""
    heads, width, out = w.shape
    product = latent[:, 0].float() @ w.float().transpose(0, 1).reshape(width, heads * out)
    return product.to(latent.dtype).unflatten(-1, (heads, out))


def _transpose(v: torch.Tensor, query_starts: list[int]) -> torch.Tensor:
    tokens, heads, width = v.shape
    turned = transposed.empty(v, heads, width, transposed.columns(tokens, len(query_starts) - 1)).zero_()
    columns = transposed.starts(query_starts)
    for column, start, end in zip(columns[:-1], query_starts[:-1], query_starts[1:], strict=True):
        turned[:, :, column : column + end - start] = v[start:end].permute(1, 2, 0)
    return turned
