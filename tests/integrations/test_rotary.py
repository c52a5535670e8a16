"""An attached model hands kvc its queries and keys exactly as projected (and normed)."""

from typing import Any

import pytest
import torch
from tiny_models import make_model
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from kvc.integrations.transformers.rotary import IdentityRotary


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_identity(dtype: torch.dtype) -> None:
    """Every finite value, subnormals and the largest included."""
    information = torch.finfo(dtype)
    edges = torch.tensor(
        [information.max, -information.max, information.smallest_normal / 4, 0.0, -0.0, 1.0], dtype=dtype
    )
    x = torch.cat([edges, torch.randn(58).to(dtype)]).view(1, 2, 4, 8)
    cos, sin = IdentityRotary()(x, position_ids=torch.arange(4)[None])
    q, k = apply_rotary_pos_emb(x, x.flip(-1), cos, sin)
    assert torch.equal(q, x)
    assert torch.equal(k, x.flip(-1))


@pytest.mark.parametrize("name", ["qwen3", "llama-odd-heads"])
def test_layers_get_unrotated_queries_and_keys(attached: Any, name: str, monkeypatch: Any) -> None:
    seen = {}

    def layer(index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        seen.setdefault(index, (q, k, v))
        return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    monkeypatch.setattr(attached.kvc_cache, "layer", layer)
    runner = attached.runner()
    runner.admit("a")
    ids = torch.tensor([[4, 5, 6]])
    runner.step({"a": ids[0].tolist()})
    plain = make_model(name).model
    attention, hidden = plain.layers[0].self_attn, plain.layers[0].input_layernorm(plain.embed_tokens(ids))
    q = attention.q_proj(hidden).view(3, -1, attention.head_dim)
    k = attention.k_proj(hidden).view(3, -1, attention.head_dim)
    if hasattr(attention, "q_norm"):
        q, k = attention.q_norm(q), attention.k_norm(k)
    assert torch.equal(seen[0][0], q)
    assert torch.equal(seen[0][1], k)
    assert torch.equal(seen[0][2], attention.v_proj(hidden).view(3, -1, attention.head_dim))
