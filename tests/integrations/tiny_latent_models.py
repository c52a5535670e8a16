"""Small random models of the families with latent attention, and where their routers come close to a tie."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Glm4MoeLiteConfig,
    Glm4MoeLiteForCausalLM,
    Mistral4Config,
    Mistral4ForCausalLM,
)

YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 0.7,
    "mscale_all_dim": 1.0,
}
# Mistral4's queries grow at positions 16, 32, ...: within the lengths of the tests.
_GROWING = {"llama_4_scaling_beta": 0.4, "original_max_position_embeddings": 16}
_DIMS = {
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 3,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
}


def _heads(heads: int, q_lora_rank: int | None) -> dict[str, Any]:
    shape = {"num_attention_heads": heads, "num_key_value_heads": heads, "hidden_size": 16 * heads}
    return {**_DIMS, **shape, "q_lora_rank": q_lora_rank}


_DENSE_FIRST = {"first_k_dense_replace": 1}
# Name -> (model class, config class, settings beside those that all tiny models share).
LATENT: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "deepseek_v2": (DeepseekV2ForCausalLM, DeepseekV2Config, _heads(3, None) | _DENSE_FIRST),
    "deepseek_v2-yarn": (
        DeepseekV2ForCausalLM,
        DeepseekV2Config,
        _heads(5, 20) | _DENSE_FIRST | {"attention_bias": True, "rope_parameters": YARN},
    ),
    "deepseek_v3": (DeepseekV3ForCausalLM, DeepseekV3Config, _heads(3, 20) | _DENSE_FIRST | {"rope_interleave": False}),
    "deepseek_v3-yarn": (
        DeepseekV3ForCausalLM,
        DeepseekV3Config,
        _heads(5, None) | _DENSE_FIRST | {"rope_parameters": YARN},
    ),
    "glm4_moe_lite": (Glm4MoeLiteForCausalLM, Glm4MoeLiteConfig, _heads(5, 20) | {"attention_bias": True}),
    "glm4_moe_lite-yarn": (
        Glm4MoeLiteForCausalLM,
        Glm4MoeLiteConfig,
        _heads(3, None) | {"rope_parameters": YARN | {"truncate": False}},
    ),
    # Its plain rotary embedding rotates more features than its queries have (transformers 5.24), so: linear by 1.
    "mistral4": (
        Mistral4ForCausalLM,
        Mistral4Config,
        _heads(5, None) | {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 1.0} | _GROWING},
    ),
    "mistral4-yarn": (Mistral4ForCausalLM, Mistral4Config, _heads(3, 20) | {"rope_parameters": YARN | _GROWING}),
}


class Routing:
    """What the routers of a model scored during the forwards of a `watch`: ``[tokens, experts]`` a call."""

    def __init__(self) -> None:
        self.scores: list[torch.Tensor] = []
        self.chosen: list[torch.Tensor] = []

    @property
    def margin(self) -> float:
        """The smallest lead of a chosen expert over the best one left out."""
        ranked = (scores.sort(-1, descending=True).values for scores in self.scores)
        counts = (chosen.shape[-1] for chosen in self.chosen)
        return min(float((scores[:, k - 1] - scores[:, k]).min()) for scores, k in zip(ranked, counts, strict=True))

    def note(self, router: Any, _: Any, output: Any) -> None:
        """A forward hook of a router, which returns (logits, weights, indices)."""
        logits, _, indices = output
        bias = getattr(router, "e_score_correction_bias", None)
        self.scores.append(logits.softmax(-1) if bias is None else logits.sigmoid() + bias)
        self.chosen.append(indices.sort(-1).values)


@contextmanager
def watch(model: Any) -> Iterator[Routing]:
    """Look at every routing decision of the forwards inside."""
    routing = Routing()
    routers = [module for module in model.modules() if type(module).__name__.endswith("TopkRouter")]
    assert routers
    hooks = [router.register_forward_hook(routing.note) for router in routers]
    try:
        yield routing
    finally:
        for hook in hooks:
            hook.remove()
