"""The boundary of `mla_sparse` layers: that of `mla`, and what their indexers score with.

The choice of tokens stays inside kvc: a layer that shares an earlier one's takes it from the cache, so what decoder
layers pass along for that is None.
"""

from typing import Any

from torch import Tensor

from kvc.integrations.transformers.latent import Inputs, split_projections
from kvc.integrations.transformers.owners import owner_of


def sparse_forward(module: Any, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    """An attention module's forward: hidden states ``[B, T, hidden]`` -> ``(output of o_proj, None)``.

    Masks, positions, caches and earlier choices in the other arguments are not read. Raises KvcError KVC610 for a
    module that no attachment owns.
    """
    out = owner_of(module).attend(module.layer_idx, *project_sparse(module, hidden_states))
    return module.o_proj(out.flatten(-2)), None


def project_sparse(module: Any, hidden_states: Tensor) -> tuple[Tensor, ...]:
    """The inputs of an `mla` layer and, where the module has an indexer, those of `project_index`."""
    query_latent = module.q_a_layernorm(module.q_a_proj(hidden_states))
    inputs: Inputs = split_projections(module, module.q_b_proj(query_latent), hidden_states)
    if module.indexer is None:
        return inputs
    return *inputs, *project_index(module.indexer, hidden_states, query_latent)


def project_index(indexer: Any, hidden_states: Tensor, query_latent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """index_q ``[B, T, Hi, Di]``, index_k ``[B, T, 1, Di]``, both before RoPE, and one weight a head ``[B, T, Hi]``.

    The weights are fp32, and in a checkpoint so is the linear that makes them.
    """
    index_q = indexer.wq_b(query_latent).unflatten(-1, (-1, indexer.head_dim))
    index_k = indexer.k_norm(indexer.wk(hidden_states)).unsqueeze(-2)
    weights = indexer.weights_proj(hidden_states.to(indexer.weights_proj.weight.dtype)).float()
    return index_q, index_k, weights
