"""Definition, checks and fake kernel of kvc::index_topk."""

from typing import Any

import torch

from kvc.ops.axes import ACTIVATIONS, BYTES, FLOAT32, INT32, Operand, bind, wrong
from kvc.ops.codecs import codec_of
from kvc.ops.paging import check_encoded_pool
from kvc.ops.values import check_range, check_tokens

NAME = "index_topk"
DEFINITION = (
    f"{NAME}(Tensor index_q, Tensor weights, Tensor pool, Tensor page_table, Tensor positions, Tensor sequence_ids, *, "
    "str encoding, int tokens_per_page, int top_k, float score_scale) -> Tensor"
)
OPERANDS = (
    Operand("index_q", "T Hi Di", ACTIVATIONS),
    Operand("weights", "T Hi", FLOAT32),
    Operand("pool", "P page_bytes", BYTES),
    Operand("page_table", "B W", INT32),
    Operand("positions", "T", INT32),
    Operand("sequence_ids", "T", INT32),
)


def check(*tensors: Any, encoding: str, tokens_per_page: int, top_k: int, score_scale: float) -> dict[str, Any]:
    """Check shapes, dtypes and encoding; return the sizes."""
    sizes = bind(NAME, OPERANDS, tensors)
    if top_k < 1:
        raise wrong(NAME, "top_k", f"is {top_k}, expected 1 or more")
    if codec_of(NAME, encoding, "key").factor is not None:
        raise wrong(NAME, "encoding", f"is {encoding}: index keys are stored without a scale operand")
    check_encoded_pool(NAME, tensors[2], encoding, ("key",), (1,), (sizes["Di"],), tokens_per_page)
    return sizes


def check_values(
    index_q: torch.Tensor,
    weights: torch.Tensor,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    positions: torch.Tensor,
    sequence_ids: torch.Tensor,
    *,
    tokens_per_page: int,
    **_: Any,
) -> None:
    """Pages lie in the pool, tokens in the table."""
    check_range(NAME, "page_table", page_table, -1, pool.shape[0])
    check_tokens(NAME, positions, sequence_ids, page_table.shape[0], page_table.shape[1] * tokens_per_page)


def fake(index_q: torch.Tensor, *rest: Any, top_k: int, **_: Any) -> torch.Tensor:
    """An empty result."""
    return index_q.new_empty((index_q.shape[0], top_k), dtype=torch.int32)
