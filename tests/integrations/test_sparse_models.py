"""Models with sparse attention on kvc: the rows that their own indexers choose, their logits, and mixed caches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_matching import compiled, messages
from tiny_models import SPARSE_MODELS, compile_for, make_model, spec_values, token_ids
from tiny_sparse_models import TOP_K, Choices, LowestFirst, full_layers, watch_choices, watch_selections
from transformers import DynamicCache

from kvc import compat
from kvc.integrations.transformers import attach
from kvc.integrations.transformers.parity import kl_divergence

LENGTH = 48
TIE = 1e-5  # scores closer than this may be ranked either way
# Name -> tokens of each forward.
SCHEDULES = {
    "prefill": [LENGTH],
    "chunks": [7, 16, 1, 13, 11],
    "decode": [19, *[1] * (LENGTH - 19)],
}


def forwards(model: Any, cache: Any, ids: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """Logits of one sequence, so many tokens a forward."""
    options = {compat.cache_argument(model): cache}
    return torch.cat([model(part, **options).logits for part in ids.split(tokens, dim=1)], dim=1)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", SPARSE_MODELS)
def test_the_same_rows_and_logits(name: str, schedule: str, tmp_path: Path, record_property: Any) -> None:
    """Sets of rows by token and layer; where they differ, the scores tie. A layer that shares takes the same rows.

    The model then goes on with the rows that kvc read, so that a tie changes neither later choices nor logits.
    """
    model, ids, tokens = make_model(name), token_ids(1, LENGTH, seed=3), SCHEDULES[schedule]
    with attach(model, compile_for(tmp_path, model)) as attached, watch_selections(attached.kvc_cache) as selected:
        got = forwards(model, attached.new_cache(), ids, tokens)
    with watch_choices(model, selected) as choices:
        expected = forwards(model, DynamicCache(config=model.config), ids, tokens)
    owners = full_layers(model)
    assert all(rows == selected[max(full for full in owners if full <= layer)] for layer, rows in selected.items())
    ties = {(layer, token): gap for layer in owners for token, gap in differences(choices, layer, selected[layer])}
    record_property("ties", ties)
    print(f"{name}, {schedule}: ties (layer, token): score gap: {ties or 'none'}")
    assert len(ties) < LENGTH / 10 and all(gap < TIE for gap in ties.values()), ties
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0.0)


def differences(choices: Choices, layer: int, rows: list[set[int]]) -> Iterator[tuple[int, float]]:
    """Tokens for which a layer's own indexer chose others than ``rows``, and how far the scores of those are apart."""
    own = choices.of(layer)
    assert list(map(len, rows)) == list(map(len, own)) == [min(token + 1, TOP_K) for token in range(LENGTH)]
    for token, (ours, theirs) in enumerate(zip(rows, own, strict=True)):
        if ours != theirs:
            yield token, choices.gap(layer, token, ours ^ theirs)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", SPARSE_MODELS)
def test_greedy_tokens(name: str, padded: bool, tmp_path: Path) -> None:
    """generate() on a batch, with prompts of one length or padded on the left, token by token."""
    model, ids = make_model(name), token_ids(3, 19)
    mask = torch.ones_like(ids)
    for row in range(3 if padded else 0):
        mask[row, : 3 * row] = 0
    options = {"attention_mask": mask, "max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    with LowestFirst():
        expected = model.generate(ids * mask, **options)
    with attach(model, compile_for(tmp_path, model), tokens=1024) as attached:
        cache = {compat.cache_argument(model): attached.new_cache()}
        assert torch.equal(model.generate(ids * mask, **options, **cache), expected)


def mixed_values(model: Any, first: int, last: int, encoding: str = "nvfp4") -> dict[str, Any]:
    """A spec with retained tokens in fp8."""
    values = spec_values(model.config, encoding)
    unit = {"source": "unit"}
    values["cache"] |= {"scales": unit, "retain": {"first": first, "last": last, "encoding": "fp8", "scales": unit}}
    return values


@pytest.mark.parametrize("name", SPARSE_MODELS)
def test_a_mixed_cache(name: str, tmp_path: Path) -> None:
    """Everything retained is the fp8 cache, bit for bit; retaining a part is between that and a plain nvfp4 cache."""
    model, ids, tokens = make_model(name), token_ids(1, LENGTH, seed=3), SCHEDULES["decode"]
    expected = forwards(model, DynamicCache(config=model.config), ids, tokens)

    def logits(values: dict[str, Any]) -> torch.Tensor:
        with attach(model, compiled(tmp_path, values)) as attached:
            return forwards(model, attached.new_cache(), ids, tokens)

    plain = {encoding: logits(_unit(spec_values(model.config, encoding))) for encoding in ("fp8", "nvfp4")}
    assert torch.equal(logits(mixed_values(model, 256, 1)), plain["fp8"])
    some = logits(mixed_values(model, 4, 24))
    fp8, mixed, nvfp4 = (
        float(kl_divergence(expected[0, 19:], x[0, 19:]).mean()) for x in (plain["fp8"], some, plain["nvfp4"])
    )
    print(f"{name}: mean KL of fp8 {fp8:.2e}, mixed {mixed:.2e}, nvfp4 {nvfp4:.2e}")
    assert fp8 < mixed < nvfp4


def _unit(values: dict[str, Any]) -> dict[str, Any]:
    values["cache"]["scales"] = {"source": "unit"}
    return values


@pytest.mark.parametrize("encoding", ["nvfp4", "nvfp4_rope_fp8", "nvfp4_residual"])
@pytest.mark.parametrize("name", SPARSE_MODELS)
def test_generation_on_mixed_caches(name: str, encoding: str, tmp_path: Path) -> None:
    model, ids = make_model(name), token_ids(2, 21)
    with attach(model, compiled(tmp_path, mixed_values(model, 4, 8, encoding)), tokens=1024) as attached:
        options = {compat.cache_argument(model): attached.new_cache()}
        got = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0, **options)
    assert got.shape == (2, 29) and torch.equal(got[:, :21], ids)


CHANGES = {
    "top_k": (12, "indexer.top_k of layers 0-2 is 12 in the spec and 9 in the model"),
    "heads": (4, "indexer.heads of layers 0-2 is 4 in the spec and 17 in the model"),
    "head_dim": (48, "indexer.head_dim of layers 0-2 is 48 in the spec and 32 in the model"),
    "rope_layout": (
        "interleaved",
        "indexer.rope_layout of layers 0-2 is interleaved in the spec and half in the model",
    ),
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_number_of_the_indexer_is_named(field: str, tmp_path: Path) -> None:
    value, expected = CHANGES[field]
    model = make_model("deepseek_v32-yarn")
    values = spec_values(model.config)
    for layer in values["model"]["layers"]:
        layer["indexer"][field] = value
    assert any(found.startswith(expected) for found in messages(model, compiled(tmp_path, values)))


def test_another_layer_that_shares_is_named(tmp_path: Path) -> None:
    model = make_model("glm_moe_dsa")
    values = spec_values(model.config)
    values["model"]["layers"][2] = values["model"]["layers"][3]
    found = messages(model, compiled(tmp_path, values))
    assert "indexer.shared of layer 2 is False in the spec and True in the model" in found[0]
