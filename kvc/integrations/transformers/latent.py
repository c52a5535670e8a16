"""The boundary of `mla` layers: one forward for the attention modules of every family with a latent.

transformers expands K and V before it calls its attention function, which is what a latent cache avoids; so the whole
forward is replaced. It calls the module's own linears and norms, with their biases, quantization and adapters, except
`kv_b_proj`: that one's weight is bound to the compiled layer, which expands or absorbs it.
"""

from typing import Any

import torch
from torch import Tensor, nn

from kvc.diagnostics import fail
from kvc.graphs.program import Program
from kvc.integrations.transformers.owners import owner_of

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


def latent_forward(module: Any, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    """An attention module's forward: hidden states ``[B, T, hidden]`` -> ``(output of o_proj, None)``.

    Masks, positions and caches in the other arguments are not read: the step in progress knows them. Raises KvcError
    KVC610 for a module that no attachment owns.
    """
    out = owner_of(module).attend(module.layer_idx, *project(module, hidden_states))
    return module.o_proj(out.flatten(-2)), None


def project(module: Any, hidden_states: Tensor) -> Inputs:
    """q_nope ``[B, T, H, N]``, q_rope ``[B, T, H, R]``, normed latent ``[B, T, 1, C]``, k_rope ``[B, T, 1, R]``."""
    return split_projections(module, _queries(module, hidden_states), hidden_states)


def split_projections(module: Any, queries: Tensor, hidden_states: Tensor) -> Inputs:
    """`project` with ``queries`` ``[B, T, H * (N + R)]`` at hand."""
    q = queries.unflatten(-1, (-1, module.qk_head_dim))
    q_nope, q_rope = q.split([module.qk_nope_head_dim, module.qk_rope_head_dim], dim=-1)
    joined = module.kv_a_proj_with_mqa(hidden_states)
    latent, k_rope = joined.split([module.kv_lora_rank, module.qk_rope_head_dim], dim=-1)
    return q_nope, q_rope, module.kv_a_layernorm(latent).unsqueeze(-2), k_rope.unsqueeze(-2)


def _queries(module: Any, hidden_states: Tensor) -> Tensor:
    if module.q_lora_rank is None:
        return module.q_proj(hidden_states)
    return module.q_b_proj(module.q_a_layernorm(module.q_a_proj(hidden_states)))


def checkpoint_weights(program: Program, modules: list[Any]) -> dict[str, Tensor]:
    """The weights that the program's layers expand latents with, by the names it knows them under."""
    named = {
        program.constants[constant].params["tensor"]: modules[binding.layer]
        for binding in program.bindings
        for constant in binding.constants.values()
        if program.constants[constant].kind == "weight"
    }
    return {name: expansion_weight(module) for name, module in named.items()}


def expansion_weight(module: Any) -> Tensor:
    """The matrix ``[H * (N + V), C]`` that an attention module expands latents with: kv_b_proj's parameter, no copy.

    Where that linear keeps it in another form or adds to it (quantized, with an adapter), what it makes of the unit
    vectors. Raises KvcError KVC617 for a bias, which an absorbed weight has no place for.
    """
    linear = module.kv_b_proj
    if getattr(linear, "bias", None) is not None:
        raise fail("KVC617", "kv_b_proj with a bias is not supported", help="detach the model: it cannot be absorbed")
    if type(linear) is nn.Linear and type(linear.weight) is nn.Parameter:
        return linear.weight.detach()
    with torch.no_grad():
        unit = torch.eye(module.kv_lora_rank, dtype=_norm(module).dtype, device=_norm(module).device)
        return linear(unit).T.contiguous()


def _norm(module: Any) -> Tensor:
    """A weight that is never quantized: it has the dtype and the device of activations."""
    weight: Tensor = module.kv_a_layernorm.weight
    return weight
