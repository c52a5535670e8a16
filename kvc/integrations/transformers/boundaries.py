"""Where kvc takes over inside an attention module, by the kind of layer that the spec has for it."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from kvc import compat
from kvc.graphs.program import Program
from kvc.integrations.transformers import owners
from kvc.integrations.transformers.attention import IMPLEMENTATION, kvc_attention
from kvc.integrations.transformers.families import Family
from kvc.integrations.transformers.latent import checkpoint_weights, latent_forward
from kvc.integrations.transformers.rotary import IdentityRotary
from kvc.integrations.transformers.sparse import sparse_forward

Modules = list[Any]


@dataclass(frozen=True)
class Boundary:
    """One way of taking over.

    ``forward`` replaces the forward of each attention module, where the attention function alone is too late. The
    first ``queries`` inputs of the layer are queries. ``weights`` are tensors of the model that the program is bound
    to, by the names it knows them under.
    """

    queries: int
    forward: Callable[..., Any] | None = None
    weights: Callable[[Program, Modules], Mapping[str, Tensor]] | None = None

    def weights_of(self, model: PreTrainedModel, program: Program, modules: Modules) -> dict[str, Tensor]:
        """What `LoadedArtifact.allocate` needs of the model: its own tensors, and those that it keeps otherwise."""
        return {**model.state_dict(), **(self.weights(program, modules) if self.weights else {})}


BOUNDARIES = MappingProxyType(
    {
        "gqa": Boundary(queries=1),
        "mla": Boundary(queries=2, forward=latent_forward, weights=checkpoint_weights),
        "mla_sparse": Boundary(queries=2, forward=sparse_forward, weights=checkpoint_weights),
    }
)


def take_over(model: PreTrainedModel, family: Family, owner: owners.Attends) -> ExitStack:
    """Send the attention of ``model`` to ``owner`` and leave RoPE to it; closing the result gives it all back."""
    undo, modules = ExitStack(), family.attention_modules(model.base_model)
    owners.claim(modules, owner)
    undo.callback(owners.disown, modules)
    undo.callback(_restorer(model, family))
    # For every kind: transformers makes no causal mask for an attention function that is not its own.
    AttentionInterface.register(IMPLEMENTATION, kvc_attention)
    model.set_attn_implementation(IMPLEMENTATION)
    setattr(model.base_model, family.rotary, IdentityRotary())
    forward = BOUNDARIES[family.kind].forward
    if forward is not None:
        for module in modules:
            undo.callback(compat.replace_forward(module, _with_results(forward, family.results)))
    return undo


def _with_results(forward: Callable[..., Any], count: int) -> Callable[..., Any]:
    """``forward`` with as many results as the family's decoder layers take apart, None behind its own."""

    def run(*args: Any, **options: Any) -> tuple[Any, ...]:
        made = forward(*args, **options)
        return *made, *[None] * (count - len(made))

    return run


def _restorer(model: PreTrainedModel, family: Family) -> Callable[[], None]:
    implementation, rotary = compat.attention_implementation(model), getattr(model.base_model, family.rotary)

    def restore() -> None:
        if is_taken_over(model):
            model.set_attn_implementation(implementation)
            setattr(model.base_model, family.rotary, rotary)

    return restore


def is_taken_over(model: PreTrainedModel) -> bool:
    """Whether kvc answers for the model's attention."""
    return compat.attention_implementation(model) == IMPLEMENTATION
