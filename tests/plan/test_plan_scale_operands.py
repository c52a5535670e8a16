"""Bytes of scale operands: those of the constants that the program is compiled with, one a layer of a checkpoint's."""

import pytest

from kvc.graphs.lowering.lower import lower
from kvc.plan import make_plan
from kvc.specs import load_spec_text

_SPEC = """\
kvc: 1
name: operands
model:
  dtype: bf16
  max_position: 64
  layers:
    - {kind: mla, repeat: 3, heads: 2, kv_lora_rank: 32, qk_nope_head_dim: 16, qk_rope_head_dim: 16, v_head_dim: 16,
       rope: none}
cache: {encoding: fp8, tokens_per_page: 16, scales: %s}
attention: {%s}
target: {device: cpu, max_sequences: 2, max_seq_len: 64, max_tokens: 16}
"""
_CHECKPOINT = "{source: checkpoint}"

# (scales of the cache, context attention, operands)
CASES = {
    "one number for all layers": ("{source: unit}", "context: act", 1),
    "equal numbers of the cache and of context attention": (
        "{source: unit}",
        "context: fp8, scales: {source: unit}",
        1,
    ),
    "three numbers beside it": (
        "{source: unit}",
        "context: fp8, scales: {source: values, values: {q: 0.5, k: 0.25, v: 2.0}}",
        4,
    ),
    "a list": ("{source: values, values: {latent: [0.5, 0.25, 0.5]}}", "context: act", 2),
    "one a layer of a checkpoint": (_CHECKPOINT, "context: act", 3),
    "and three a layer of context attention": (_CHECKPOINT, f"context: fp8, scales: {_CHECKPOINT}", 12),
}


@pytest.mark.parametrize(("cache", "attention", "operands"), CASES.values(), ids=CASES)
def test_planned_operands_are_the_programs(cache: str, attention: str, operands: int) -> None:
    spec = load_spec_text(_SPEC % (cache, attention), "some.yaml")
    plan = make_plan(spec)
    scales = [constant for constant in lower(spec, plan).constants.values() if constant.kind == "scale"]
    assert len(scales) == operands
    assert plan.overheads.scale_bytes == operands * 2 * 4  # float32[2]: the scale and its reciprocal
