"""Small random models of the families with sparse attention, their specs, and what their own indexers choose."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tiny_latent_models import YARN
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import DeepseekV32Config, DeepseekV32ForCausalLM, GlmMoeDsaConfig, GlmMoeDsaForCausalLM

TOP_K = 9  # far below the lengths of the tests
# Widths of whole nvfp4 groups where rows are stored, so that the same models run on every encoding.
_DIMS = {
    "hidden_size": 48,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "q_lora_rank": 20,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 16,
    "v_head_dim": 10,
    "index_n_heads": 17,  # so that hardly ever all of them say 0, which would tie
    "index_head_dim": 32,
    "index_topk": TOP_K,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
}
_SHARED = {"num_hidden_layers": 5, "indexer_types": ["full", "shared", "shared", "full", "shared"]}
# Name -> (model class, config class, settings beside those that all tiny models share).
SPARSE: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "deepseek_v32-yarn": (
        DeepseekV32ForCausalLM,
        DeepseekV32Config,
        _DIMS | {"num_hidden_layers": 3, "rope_parameters": YARN},
    ),
    "glm_moe_dsa": (GlmMoeDsaForCausalLM, GlmMoeDsaConfig, _DIMS | _SHARED),
}
_INDEX_LAYOUTS = {"deepseek_v32": "half", "glm_moe_dsa": "interleaved"}


def sparse_layers(config: Any, latent: dict[str, Any]) -> list[dict[str, Any]]:
    """The spec's layers of a model, ``latent`` being what they have in common with `mla` layers."""
    kinds = getattr(config, "indexer_types", None) or ["full"] * config.num_hidden_layers
    layer = {name: value for name, value in latent.items() if name != "repeat"}
    return [
        layer | {"kind": "mla_sparse", "variant": "dsa", "indexer": _indexer(config, kind == "shared")}
        for kind in kinds
    ]


def _indexer(config: Any, shared: bool) -> dict[str, Any]:
    numbers = {"heads": config.index_n_heads, "head_dim": config.index_head_dim, "top_k": config.index_topk}
    layout = {"shared": True} if shared else {"rope_layout": _INDEX_LAYOUTS[config.model_type]}
    return {**numbers, "encoding": "fp32", **layout}


class Scores(TorchFunctionMode):
    """Remembers the operand of every `Tensor.topk`: what an indexer ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.empty(0)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called for every torch function inside the mode."""
        if function is Tensor.topk:
            self.last = args[0]
        return function(*args, **(kwargs or {}))


class LowestFirst(TorchFunctionMode):
    """Equal scores are ranked by position, as kvc ranks them; `topk` does not say which of them it takes."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called for every torch function inside the mode."""
        if function is Tensor.topk:
            ranked = torch.sort(args[0], dim=-1, descending=True, stable=True)
            return torch.return_types.topk(tuple(x[..., : args[1]] for x in ranked))
        return function(*args, **(kwargs or {}))


Rows = dict[int, list[set[int]]]  # layer -> token -> positions


class Choices:
    """What a model's own indexers scored and chose: layer -> ``[B, T, L]`` and ``[B, T, K]`` of each call.

    With ``forced`` rows, of one sequence, the model goes on with those.
    """

    def __init__(self, forced: Rows | None = None) -> None:
        self.forced = forced
        self.scores: dict[int, list[Tensor]] = {}
        self.chosen: dict[int, list[Tensor]] = {}
        self.mode = Scores()

    def note(self, indexer: Any, _: Any, output: Tensor) -> Tensor | None:
        """A forward hook of an indexer."""
        chosen = self.chosen.setdefault(indexer.layer_idx, [])
        start = sum(call.shape[1] for call in chosen)
        chosen.append(output)
        self.scores.setdefault(indexer.layer_idx, []).append(self.mode.last)
        if self.forced is None:
            return None
        rows = self.forced[indexer.layer_idx][start : start + output.shape[1]]
        # A position that is there twice is masked no differently.
        return output.new_tensor([[(sorted(row) * TOP_K)[:TOP_K] for row in rows]])

    def of(self, layer: int, sequence: int = 0) -> list[set[int]]:
        """Token -> the positions chosen for it, over the calls; hidden ones, which are masked anyway, left out."""
        rows = [row for call in self.chosen[layer] for row in call[sequence].tolist()]
        return [{p for p in row if p <= token} for token, row in enumerate(rows)]

    def gap(self, layer: int, token: int, differing: set[int], sequence: int = 0) -> float:
        """How far the scores of ``differing`` positions are from the last one that was chosen for a token."""
        scores = [row for call in self.scores[layer] for row in call[sequence]][token]
        last = min(float(scores[p]) for p in self.of(layer, sequence)[token])
        return max((abs(float(scores[p]) - last) for p in differing), default=0.0)


@contextmanager
def watch_choices(model: Any, forced: Rows | None = None) -> Iterator[Choices]:
    """Look at every choice of the model's own indexers in the forwards inside; let it read ``forced`` rows instead."""
    choices = Choices(forced)
    modules = [layer.self_attn.indexer for layer in model.model.layers]
    hooks = [module.register_forward_hook(choices.note) for module in modules if module is not None]
    assert hooks
    try:
        with choices.mode:
            yield choices
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def watch_selections(cache: Any) -> Iterator[Rows]:
    """Layer -> token -> the rows that kvc's layer reads, in steps of one sequence."""
    found: Rows = {}
    run = cache.layer

    def layer(index: int, *values: Tensor) -> Tensor:
        out = run(index, *values)
        found.setdefault(index, []).extend(map(set_of, cache.selection(index)))
        return out

    cache.layer = layer
    try:
        yield found
    finally:
        del cache.layer


def full_layers(model: Any) -> list[int]:
    """Layers with an indexer of their own."""
    return [index for index, layer in enumerate(model.model.layers) if layer.self_attn.indexer is not None]


def set_of(row: Tensor) -> set[int]:
    """The positions in a row of a choice."""
    return {int(p) for p in row if p >= 0}
