"""What attached models with sparse attention hand to kvc, checked by an indexer and an attention written down here."""

from typing import Any

import pytest
import torch
from test_latent_boundary import Expanded, rotated, taken_over
from tiny_models import SPARSE_MODELS, make_model, token_ids
from tiny_sparse_models import TOP_K, full_layers, set_of, watch_choices
from torch import Tensor

from kvc.integrations.transformers.sparse import project_sparse

TOLERANCE = {"atol": 1e-4, "rtol": 0.0}
LAYOUTS = {"deepseek_v32-yarn": "half", "glm_moe_dsa": "interleaved"}


class Chosen(Expanded):
    """Attends over what its own indexer chose, one sequence in one forward; ``rows`` of each layer that has one."""

    def __init__(self, model: Any, index_layout: str) -> None:
        super().__init__(model)
        self.layout = index_layout
        self.rows: dict[int, Tensor] = {}

    def attend(self, layer: int, *inputs: Tensor) -> Tensor:
        if len(inputs) > 4:
            self.rows[layer] = self.choose(*(x[0] for x in inputs[4:]))
        self.chosen = self.rows[max(of for of in self.rows if of <= layer)]
        return super().attend(layer, *inputs[:4])

    def hidden(self, scores: Tensor) -> Tensor:
        out = torch.ones_like(scores, dtype=torch.bool)
        for token, row in enumerate(self.chosen):
            out[:, token, sorted(set_of(row))] = False
        return out

    def choose(self, q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
        turned = self.table.shape[-1]
        q, k = (torch.cat([rotated(x[..., :turned], self.table, self.layout), x[..., turned:]], -1) for x in (q, k))
        scores = torch.einsum("thd,sd->hts", q, k[:, 0]).mul(q.shape[-1] ** -0.5).relu()
        scores = torch.einsum("th,hts->ts", weights * weights.shape[-1] ** -0.5, scores)
        scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        found = scores.topk(min(TOP_K, len(scores)))
        return found.indices.masked_fill(found.values == -torch.inf, -1)


@pytest.mark.parametrize("name", SPARSE_MODELS)
def test_logits_and_choices(name: str) -> None:
    model, ids = make_model(name), token_ids(1, 40)
    with watch_choices(model) as choices:
        expected = model(ids, use_cache=False).logits
    owner = Chosen(model, LAYOUTS[name])
    with taken_over(model, owner):
        torch.testing.assert_close(model(ids, use_cache=False).logits, expected, **TOLERANCE)
    assert list(owner.rows) == full_layers(model)
    for layer, rows in owner.rows.items():
        assert list(map(set_of, rows)) == choices.of(layer)
    assert torch.equal(model(ids, use_cache=False).logits, expected)  # given back


@pytest.mark.parametrize("name", SPARSE_MODELS)
def test_the_layout_of_index_keys_matters(name: str) -> None:
    """Or the test above would show nothing of it."""
    model, ids = make_model(name), token_ids(1, 40)
    expected = model(ids, use_cache=False).logits
    with taken_over(model, Chosen(model, "interleaved" if LAYOUTS[name] == "half" else "half")):
        assert (model(ids, use_cache=False).logits - expected).abs().max() > 1e-2


@pytest.mark.parametrize("name", SPARSE_MODELS)
def test_shapes_and_dtypes(name: str) -> None:
    """The index weights are fp32 whatever the activations are; a shared indexer projects nothing."""
    model = make_model(name, torch.bfloat16)
    for layer in model.model.layers:
        module = layer.self_attn
        inputs = project_sparse(module, torch.randn(2, 3, module.hidden_size, dtype=torch.bfloat16))
        shapes = [(2, 3, 3, 12), (2, 3, 3, 16), (2, 3, 1, 32), (2, 3, 1, 16)]
        index = [(2, 3, 17, 32), (2, 3, 1, 32), (2, 3, 17)] if module.indexer is not None else []
        assert [tuple(x.shape) for x in inputs] == shapes + index
        assert {x.dtype for x in inputs[:6]} == {torch.bfloat16}
        assert all(x.dtype == torch.float32 for x in inputs[6:])
