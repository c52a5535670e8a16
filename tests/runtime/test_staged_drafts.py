"""Staging where tokens are drafted: lengths that the device corrects reach it, and draft layers have none."""

import pytest
import torch
from cache_harness import layers
from mixed_caches import artifact, equal, pool_bytes, retained, spec_text
from speculation_harness import DRAFT, Drafted, Engine
from staged_engine import ENGINE
from staged_engine import Engine as StagedAttention

from kvc.diagnostics import KvcError
from kvc.runtime.random_weights import random_weights

TWIN = retained(2, 5, "bf16")
BATCHES = [
    [Drafted("a", 9, "context"), Drafted("b", 5, "context")],
    [Drafted("a", 3, accepted=1), Drafted("b", 3, accepted=3)],
    [Drafted("a", 2, accepted=2), Drafted("b", 2, accepted=1)],
    [Drafted("c", 6, "context"), Drafted("b", 4, accepted=2), Drafted("a", 4, accepted=0)],
    [Drafted("a", 1), Drafted("b", 1), Drafted("c", 1)],
]


class StagedEngine(Engine):
    """The same engine with its own attention in the layers of the target; `own` has what they compute with."""

    def __init__(self, cache, own, kind):
        super().__init__(cache)
        self.own, self.attention = own, StagedAttention(cache, own, kind)

    def inputs(self, layer, batch):
        """Of the model that both caches are of."""
        other = Engine(self.own)
        other.lengths, other.steps = self.lengths, self.steps
        return other.inputs(layer, batch)

    def _forward(self, step, batch):
        starts = {one.name: self.lengths.get(one.name, 0) for one in batch}
        outs = [self._layer(step, layer, self.inputs(layer, batch), starts) for layer in layers(self.cache)]
        self.outs.append({one.name: [out[step.rows[one.name]][: one.true] for out in outs] for one in batch})

    def _layer(self, step, layer, inputs, starts):
        if "kernel" in self.cache.program.signatures[self.cache.program.bindings[layer].signature]:
            return self.attention.layer(step, layer, inputs, starts)
        return self.cache.layer(layer, *inputs)


def caches(kind, retain=TWIN):
    """kvc's own, and staged, on one checkpoint: of the layers, only those that draft are bound to it in the latter."""
    own, staged = (artifact(spec_text(kind, "nvfp4", retain, more=more)) for more in (DRAFT, f"{DRAFT}\n{ENGINE}"))
    weights = random_weights(own.program.constants, own.program.dtype)
    return [loaded.allocate(num_slots=256, fill=0xFF, weights=weights) for loaded in (own, staged)]


@pytest.mark.parametrize("retain", [TWIN, ""])
@pytest.mark.parametrize("kind", ["gqa", "mla"])
@pytest.mark.parametrize("run", ["synchronous", "overlapped"])
def test_an_engines_attention_with_drafts_is_that_of_kvc(kind, run, retain):
    own, cache = caches(kind, retain)
    ours, theirs = Engine(own), StagedEngine(cache, own, kind)
    for batch in BATCHES:
        for engine in (ours, theirs):
            getattr(engine, run)(batch)
    for expected, got in zip(ours.outs, theirs.outs, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    assert equal(pool_bytes(own), pool_bytes(cache))


@pytest.mark.parametrize("kind", ["gqa", "mla"])
def test_draft_layers_see_no_twin_and_no_staging(kind):
    _, cache = caches(kind)
    program = cache.program
    kernels = [program.signatures[binding.signature].get("kernel", "kvc") for binding in program.bindings]
    assert kernels == ["engine", "engine", "kvc", "kvc"]
    assert ["twin" in binding.pools for binding in program.bindings] == [True, True, False, False]
    for phase in ("context", "generation"):
        assert [n for n in program.prologues[phase].calls if "correct_lengths" in str(n.target)]
    cache.admit("a")
    cache.begin([Drafted("a", 2, "context").request])
    with pytest.raises(KvcError, match="whose attention kvc computes"):
        cache.write_back(2, torch.zeros(1, 2, 1, 1))
