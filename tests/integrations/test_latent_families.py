"""Models with latent attention: routing that cannot flip, other encodings, and what a spec must say of them."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from model_folders import byte_tokenizer
from test_matching import compiled, messages
from test_run_command import Run
from tiny_latent_models import LATENT, watch
from tiny_models import LATENT_MODELS, compile_for, make_model, spec_values, token_ids, write_spec
from transformers import AttentionInterface, DynamicCache

from kvc import compat
from kvc.integrations.transformers import attach
from kvc.integrations.transformers.parity import kl_divergence
from kvc.ops.codecs import scale_operand

LENGTH = 40


def decoded(attached: Any, ids: torch.Tensor, prompt: int) -> torch.Tensor:
    """Logits of a prompt and then a token a step."""
    cache = {compat.cache_argument(attached.model): attached.new_cache()}
    steps = [ids[:, :prompt], *ids[:, prompt:].split(1, dim=1)]
    return torch.cat([attached.model(step, **cache).logits for step in steps], dim=1)


@pytest.mark.parametrize("name", LATENT_MODELS)
def test_no_token_is_routed_otherwise(name: str, tmp_path: Path, record_property: Any) -> None:
    """The lead of every chosen expert is far above what the two runs differ by, so no tie decides a comparison."""
    model, ids = make_model(name), token_ids(1, LENGTH, seed=12)
    with watch(model) as plain:
        expected = model(ids, use_cache=False).logits
    with attach(model, compile_for(tmp_path, model)) as attached, watch(model) as routed:
        got = decoded(attached, ids, 17)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0.0)
    scores, chosen = (
        [torch.cat(x[i :: len(plain.scores)]) for i in range(len(plain.scores))] for x in (routed.scores, routed.chosen)
    )
    apart = max(float((a - b).abs().max()) for a, b in zip(scores, plain.scores, strict=True))
    record_property("smallest lead of a chosen expert", plain.margin)
    print(f"{name}: smallest lead of a chosen expert {plain.margin:.2e}, scores differ by {apart:.1e}")
    assert plain.margin > 10 * apart
    assert all(torch.equal(a, b) for a, b in zip(chosen, plain.chosen, strict=True))


def rounded(x: torch.Tensor, scale: float) -> torch.Tensor:
    """What the codes of ``x`` in e4m3 stand for."""
    operand = scale_operand("fp8", scale)
    codes = torch.ops.kvc.quantize_fp8.default(x.flatten(0, -2), operand)
    return torch.ops.kvc.dequantize_fp8.default(codes, operand, dtype=x.dtype).view_as(x)


class RoundedCache(DynamicCache):
    """transformers' own cache, its rows rounded as an encoding rounds them."""

    def __init__(self, model: Any, encoding: str) -> None:
        super().__init__(config=model.config)
        self.round = (lambda x: x.bfloat16().float()) if encoding == "bf16" else (lambda x: rounded(x, 1.0))

    def update(self, latent: Any, rope: Any, *rest: Any, **options: Any) -> Any:
        return super().update(self.round(latent), self.round(rope), *rest, **options)


@pytest.mark.parametrize("encoding", ["bf16", "fp8"])
@pytest.mark.parametrize("name", ["deepseek_v2-yarn", "deepseek_v3-yarn"])
def test_nothing_but_the_stored_rows_is_rounded(name: str, encoding: str, tmp_path: Path) -> None:
    """A token a step: close to the model with rounded rows in its own cache.

    A row whose fp32 product rounds the other way may move by a code, so not every logit is the same.
    """
    model, ids = make_model(name), token_ids(1, LENGTH, seed=12)
    cache = RoundedCache(model, encoding)
    names = compat.cache_argument(model)
    expected = torch.cat([model(one, **{names: cache}).logits for one in ids.split(1, dim=1)], dim=1)
    plain = model(ids, use_cache=False).logits
    with attach(model, compile_for(tmp_path, model, encoding)) as attached:
        near, far = (kl_divergence(expected, x).mean() for x in (decoded(attached, ids, 1), plain))
    assert near < 1e-3 * far


def rounded_attention(module: Any, q: Any, k: Any, v: Any, mask: Any, **options: Any) -> tuple[torch.Tensor, None]:
    """Attention in fp32 on Q, K and V in e4m3."""
    q, k, v = (rounded(x, 0.05) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=options["scaling"])
    return out.transpose(1, 2), None


def test_fp8_context_attention(tmp_path: Path) -> None:
    """A prompt in chunks, cached rows expanded again: close to the model whose attention rounds Q, K and V."""
    model, ids = make_model("deepseek_v3-yarn"), token_ids(1, LENGTH, seed=12)
    plain = model(ids, use_cache=False).logits
    AttentionInterface.register("rounded", rounded_attention)
    model.set_attn_implementation("rounded")
    expected = model(ids, use_cache=False).logits
    values = spec_values(model.config)
    values["attention"] = {"context": "fp8", "scales": {"source": "values", "values": dict.fromkeys("qkv", 0.05)}}
    with attach(model, compiled(tmp_path, values)) as attached:
        cache = {compat.cache_argument(model): attached.new_cache()}
        got = torch.cat([model(chunk, **cache).logits for chunk in ids.split(11, dim=1)], dim=1)
    # A sum that rounds the other way moves a code to its neighbour, so not every logit is the same.
    near, far = (kl_divergence(expected, other).mean() for other in (got, plain))
    assert near < 1e-3 * far


CHANGES = {
    "kv_lora_rank": ("kv_lora_rank", 32, "kv_lora_rank of layers 0-2 is 32 in the spec and 24 in the model"),
    "qk_nope_head_dim": (
        "qk_nope_head_dim",
        16,
        "qk_nope_head_dim of layers 0-2 is 16 in the spec and 12 in the model",
    ),
    "v_head_dim": ("v_head_dim", 12, "v_head_dim of layers 0-2 is 12 in the spec and 10 in the model"),
    "softmax_scale": ("softmax_scale", 0.5, "softmax_scale of layers 0-2 is 0.5 in the spec and 0.3"),
    "layout": ("rope.layout", "half", "rope.layout of layers 0-2 is half in the spec and interleaved in the model"),
    "factor": ("rope.factor", 4.0, "rope.factor of layers 0-2 is 4.0 in the spec and 8.0 in the model"),
    "mscale": ("rope.mscale", 0.5, "rope.mscale of layers 0-2 is 0.5 in the spec and 0.7 in the model"),
    "beta_fast": ("rope.beta_fast", 16.0, "rope.beta_fast of layers 0-2 is 16.0 in the spec and 32.0 in the model"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_number_is_named(case: str, tmp_path: Path) -> None:
    field, value, expected = CHANGES[case]
    model = make_model("deepseek_v3-yarn")
    values = deepcopy(spec_values(model.config))
    layer = values["model"]["layers"][0]
    owner = layer["rope"] if field.startswith("rope.") else layer
    owner[field.removeprefix("rope.")] = value
    assert any(found.startswith(expected) for found in messages(model, compiled(tmp_path, values)))


def test_a_layer_of_another_kind_is_named(tmp_path: Path) -> None:
    model, other = make_model("deepseek_v3"), make_model("llama-odd-heads")
    found = messages(model, compiled(tmp_path, spec_values(other.config)))
    assert "kind of layers 0-1 is gqa in the spec and mla in the model" in found


@pytest.mark.parametrize("name", ["deepseek_v2", "mistral4-yarn"])
def test_kvc_run(name: str, run_kvc: Run, tmp_path: Path) -> None:
    kind, config, settings = LATENT[name]
    shared = {"vocab_size": 256, "intermediate_size": 48, "initializer_range": 0.2, "max_position_embeddings": 512}
    torch.manual_seed(5)
    model = kind(config(**shared, pad_token_id=0, eos_token_id=None, bos_token_id=None, **deepcopy(settings))).eval()
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    spec = write_spec(tmp_path, spec_values(model.config))
    options = ("--model", str(folder), "--prompt", "latent rows", "--steps", "20", "--check")
    code, out, err = run_kvc("run", str(spec), *options)
    assert code == 0, (out, err)
    assert "check: all 20 tokens equal those of the model's own fp32 cache" in out
