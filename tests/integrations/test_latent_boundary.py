"""What attached models with latent attention hand to kvc, checked by an attention written down here.

The stand-in keeps expanded keys in a list: no pool, no page, no compiled graph. What is left is where the forward is
cut, how the rotated features are paired, YaRN's numbers, the split of kv_b_proj and Mistral4's query scale.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tiny_models import LATENT_MODELS, make_model, spec_values, token_ids
from torch import Tensor, nn

from kvc import compat
from kvc.diagnostics import KvcError
from kvc.integrations.transformers.boundaries import take_over
from kvc.integrations.transformers.families import FAMILIES
from kvc.integrations.transformers.latent import expansion_weight, project
from kvc.ops.rope_table import rope_table
from kvc.specs.models import Spec
from kvc.specs.resolve_shapes import shape_of
from kvc.specs.resolved import MlaShape

TOLERANCE = {"atol": 1e-4, "rtol": 0.0}


def shape_in_spec(config: Any) -> MlaShape:
    """The first layer of the model's spec, resolved; the others differ in their indexers at most."""
    layer = Spec.model_validate(spec_values(config)).model.layers[0]
    shape = shape_of(layer, 1, 0)
    assert isinstance(shape, MlaShape)
    return shape


def rotated(x: Tensor, table: Tensor, layout: str) -> Tensor:
    """``x`` [T, heads, R] at positions 0 to T."""
    cos, sin = table[: len(x), None].chunk(2, dim=-1)
    pairs = x.unflatten(-1, (-1, 2)) if layout == "interleaved" else x.unflatten(-1, (2, -1)).transpose(-1, -2)
    a, b = pairs.unbind(-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Expanded:
    """Owns the modules of a model and attends over all that it was given, one sequence in one forward."""

    def __init__(self, model: Any) -> None:
        self.shape = shape_in_spec(model.config)
        assert self.shape.rope
        self.table = rope_table(self.shape.rope, 64)
        self.modules = FAMILIES[model.config.model_type].attention_modules(model.base_model)

    def attend(self, layer: int, *inputs: Tensor) -> Tensor:
        q_nope, q_rope, latent, k_rope = (x[0] for x in inputs)
        shape, rope = self.shape, self.shape.rope
        assert rope
        kv = (latent @ expansion_weight(self.modules[layer]).T).unflatten(-1, (shape.heads, -1))
        k_nope, v = kv.squeeze(1).split([shape.qk_nope_head_dim, shape.v_head_dim], dim=-1)
        k_turned = rotated(k_rope, self.table, rope.layout).expand(-1, shape.heads, -1)
        q = torch.cat([q_nope, rotated(q_rope, self.table, rope.layout)], dim=-1) * self.scale(layer, len(q_nope))
        scores = torch.einsum("thd,shd->hts", q, torch.cat([k_nope, k_turned], dim=-1)) * shape.softmax_scale
        visible = scores.masked_fill(self.hidden(scores), -torch.inf)
        return torch.einsum("hts,shv->thv", visible.softmax(-1), v)[None]

    def hidden(self, scores: Tensor) -> Tensor:
        """Which keys a token does not see: those behind it."""
        return torch.ones_like(scores, dtype=torch.bool).triu(1)

    def scale(self, layer: int, tokens: int) -> Tensor | float:
        """Mistral4's own factor, as `Attachment` asks for it."""
        found = compat.query_scale(self.modules[layer], torch.arange(tokens))
        return 1.0 if found is None else found


@contextmanager
def taken_over(model: Any, owner: Any) -> Iterator[None]:
    with take_over(model, FAMILIES[model.config.model_type], owner):
        yield


@pytest.mark.parametrize("name", LATENT_MODELS)
def test_logits(name: str) -> None:
    model, ids = make_model(name), token_ids(1, 40)
    model.set_attn_implementation("eager")
    expected = model(ids, use_cache=False).logits
    with taken_over(model, Expanded(model)):
        torch.testing.assert_close(model(ids, use_cache=False).logits, expected, **TOLERANCE)
    assert torch.equal(model(ids, use_cache=False).logits, expected)  # given back


def test_the_query_scale_matters() -> None:
    """Or the tests of Mistral4 would show nothing."""
    model, ids = make_model("mistral4-yarn"), token_ids(1, 40)
    expected = model(ids, use_cache=False).logits[0]
    owner = Expanded(model)
    owner.scale = lambda layer, tokens: 1.0  # type: ignore[method-assign]
    with taken_over(model, owner):
        difference = (model(ids, use_cache=False).logits[0] - expected).abs().amax(-1)
    assert difference[:16].max() < 1e-4
    assert difference[16:].max() > 1e-2


@pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v3-yarn"])
def test_projections_are_the_modules_own(name: str) -> None:
    """With and without a latent of the queries."""
    module = make_model(name).model.layers[1].self_attn
    x = torch.randn(2, 3, module.hidden_size)
    q_nope, q_rope, latent, k_rope = project(module, x)
    heads = module.num_heads
    assert q_nope.shape == (2, 3, heads, module.qk_nope_head_dim)
    q = module.q_proj(x) if module.q_lora_rank is None else module.q_b_proj(module.q_a_layernorm(module.q_a_proj(x)))
    assert torch.equal(torch.cat([q_nope, q_rope], dim=-1).flatten(-2), q)
    joined = module.kv_a_proj_with_mqa(x)
    assert torch.equal(latent[:, :, 0], module.kv_a_layernorm(joined[..., : module.kv_lora_rank]))
    assert torch.equal(k_rope[:, :, 0], joined[..., module.kv_lora_rank :])


class Packed(nn.Module):
    """A linear that keeps its weight in another form, as quantized ones do."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.abs().amax() / 127
        self.codes, self.scale = (linear.weight / scale).round().to(torch.int8), scale

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.codes.to(x.dtype) * self.scale)


def test_a_plain_weight_is_not_copied() -> None:
    module = make_model("deepseek_v2").model.layers[0].self_attn
    assert expansion_weight(module).data_ptr() == module.kv_b_proj.weight.data_ptr()


def test_a_packed_weight_is_what_it_multiplies_by() -> None:
    module = make_model("deepseek_v2").model.layers[0].self_attn
    packed = Packed(module.kv_b_proj)
    module.kv_b_proj = packed
    torch.testing.assert_close(expansion_weight(module), packed.codes * packed.scale, atol=0, rtol=1e-6)


def test_a_bias_cannot_be_absorbed() -> None:
    module = make_model("deepseek_v2").model.layers[0].self_attn
    module.kv_b_proj.bias = nn.Parameter(torch.zeros(module.kv_b_proj.out_features))
    with pytest.raises(KvcError, match="KVC617"):
        expansion_weight(module)


def test_a_module_without_an_owner() -> None:
    model = make_model("deepseek_v2")
    with taken_over(model, Expanded(model)):
        forward = model.model.layers[0].self_attn.forward
    with pytest.raises(KvcError, match="KVC610"):
        forward(torch.zeros(1, 1, 48))
