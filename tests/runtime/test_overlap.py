"""Steps whose accepted tokens only the device knows: the same bytes as steps that are over before the next begins."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mixed_caches import equal, new_cache, retained
from speculation_harness import DRAFT, Drafted, Engine, committed_rows, draft_spec, held

CACHES = {
    "plain gqa": ("gqa", "bf16", ""),
    "plain mla": ("mla", "fp8", ""),
    "mixed gqa": ("gqa", "nvfp4", retained(3, 5, "bf16")),
    "mixed mla": ("mla", "nvfp4_rope_fp8", retained(2, 4, "fp8")),
    "mixed pages": ("gqa", "nvfp4", retained(3, 5, "fp8", "page")),
}
each_cache = pytest.mark.parametrize("name", CACHES)
NAMES = "abc"


@st.composite
def schedules(draw):
    """Batches over three sequences that come and go, and whether the host hears late of the batch before."""
    batches = []
    for _ in range(draw(st.integers(2, 7))):
        generating = draw(st.sets(st.sampled_from(NAMES)))
        chunks = draw(st.sets(st.sampled_from(NAMES), min_size=not generating)) - generating
        tokens = draw(st.integers(1, 4))
        batch = [Drafted(name, draw(st.integers(1, 9)), "context") for name in sorted(chunks)]
        order = draw(st.permutations(sorted(generating)))
        batch += [Drafted(name, tokens, "generation", draw(st.integers(0, tokens))) for name in order]
        if batch:
            batches.append((batch, draw(st.booleans())))
    return batches


# As if all were accepted, rows would be stale that are read once the device knows that three of four were not.
REJECTING = [([Drafted("a", 12, "context")], True), *[([Drafted("a", 4, "generation", 1)], True)] * 4]


def same_state(left, right):
    """Lengths, held pages and every committed row."""
    names = left.manager.sequences
    lengths = [[cache.manager.committed(name) for name in names] for cache in (left, right)]
    rows = (
        [committed_rows(cache, name, role) for name in names for role in ("history", "twin")] for cache in (left, right)
    )
    return lengths[0] == lengths[1] and held(left) == held(right) and equal(*rows)


@each_cache
@settings(max_examples=8, deadline=None)
@given(schedule=schedules(), page=st.sampled_from([1, 4, 16]))
@example(schedule=REJECTING, page=1)
def test_an_overlapped_schedule_equals_the_synchronous_one(name, schedule, page):
    kind, encoding, retain = CACHES[name]
    text = draft_spec(kind, encoding, retain, page=page)
    plain, corrected = Engine(new_cache(text)), Engine(new_cache(text))
    for batch, late in schedule:
        plain.synchronous(batch)
        corrected.overlapped(batch, late)
    assert equal(plain.outs, corrected.outs)
    corrected.settle()
    assert same_state(plain.cache, corrected.cache)
    for sequence in plain.cache.manager.sequences:
        corrected.cache.release(sequence)
    assert corrected.cache.manager.free_slots == tuple(corrected.cache.num_slots)


class StagedEngine(Engine):
    """Its target layers are staged: what is staged for them stands for their outputs."""

    def _forward(self, step, batch):
        assert self.cache.positions().tolist() == [p for one in batch for p in self._span(one)]
        staged = [self._stage(step, layer, batch) for layer in STAGED]
        drafts = [self.cache.layer(layer, *self.inputs(layer, batch)) for layer in DRAFTS]
        places = step.rows
        self.outs.append(
            {
                one.name: [rows[i] for rows in staged] + [out[places[one.name]][: one.true] for out in drafts]
                for i, one in enumerate(batch)
            }
        )

    def _span(self, one):
        start = self.lengths.get(one.name, 0)
        return range(start, start + one.tokens)

    def _stage(self, step, layer, batch):
        """What a layer finds in staging, own rows among them: sequence by sequence, rejected tokens left out."""
        own = [self._inputs_of(layer, one)[1:] for one in batch]
        staging = [torch.full((len(batch), 128, *x.shape[1:]), torch.nan) for x in own[0]]
        for i, (one, rows) in enumerate(zip(batch, own, strict=True)):
            for field, x in zip(staging, rows, strict=True):
                field[i, list(self._span(one))] = x
        self.cache.write_back(layer, *staging)
        self.cache.stage(layer, *staging)
        ends = [self._span(one).start + one.true for one in batch]
        return [[field[i, :end].clone() for field in staging] for i, end in enumerate(ends)]

    def _inputs_of(self, layer, one):
        """Of a staged layer, whose graphs take none, those of the draft layers, which are of one shape with it."""
        return super()._inputs_of(layer if layer in DRAFTS else layer + len(STAGED), one)


STAGED, DRAFTS = (0, 1), (2, 3)


@pytest.mark.parametrize("unit", ["token", "page"])
@settings(max_examples=8, deadline=None)
@given(schedule=schedules(), page=st.sampled_from([1, 4]))
@example(schedule=REJECTING, page=1)
def test_what_is_staged_and_written_back_follows_the_corrected_lengths(unit, schedule, page):
    draft = f"{DRAFT}\nattention: {{kernel: engine}}"
    text = draft_spec("gqa", "nvfp4", retained(3, 5, "bf16", unit), page=page, draft=draft)
    plain, corrected = StagedEngine(new_cache(text)), StagedEngine(new_cache(text))
    for batch, late in schedule:
        plain.synchronous(batch)
        corrected.overlapped(batch, late)
    assert equal(plain.outs, corrected.outs)
    corrected.settle()
    assert same_state(plain.cache, corrected.cache)
