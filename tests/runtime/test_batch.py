"""Shaping and packing a step, checked section by section on hand-made sequences."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from kvc.diagnostics import KvcError
from kvc.graphs.program import PHASES, Section
from kvc.plan.types import Lifecycle
from kvc.runtime.batch import Request, make_step, next_bucket, padding_step
from kvc.runtime.cache_manager import CacheManager, Limits
from kvc.runtime.packing import StepPacker
from kvc.specs.resolved import Coverage

LIMITS = Limits(max_sequences=5, max_seq_len=32, max_tokens=24)
BUCKETS = (1, 2, 4)
SECTIONS = (
    Section("slot_tables", (2, "B", "W")),
    Section("committed", ("B",)),
    Section("query_starts", ("B + 1",)),
    Section("sequence_ids", ("T",)),
)


@pytest.fixture
def manager():
    cycles = [Lifecycle(i, Coverage(), "target", 4 + 4 * i, i, (i,), Fraction(1), 0) for i in range(2)]
    pages = CacheManager(cycles, (20, 10), LIMITS)
    for name, tokens in (("a", 5), ("b", 4), ("c", 9)):
        pages.admit(name)
        pages.extend({name: tokens})
        pages.commit({name: tokens})
    return pages


def pack(step, manager):
    packer = StepPacker(dict.fromkeys(PHASES, SECTIONS), manager)
    placed = packer.place(step)
    buffer = np.full(packer.capacity(LIMITS, BUCKETS), 99, np.int32)
    packer.pack(step, placed, buffer)
    return {(at.phase, at.name): buffer[at.offset : at.stop].reshape(at.shape).tolist() for at in placed}, placed


def test_a_mixed_step(manager):
    requests = [Request("a", 3), Request("b", 2), *(Request(name, 1, "generation") for name in "c")]
    step = make_step(requests, manager, BUCKETS)
    manager.extend({request.id: request.tokens for request in requests})
    values, _ = pack(step, manager)
    assert values["context", "committed"] == [5, 4]
    assert values["context", "query_starts"] == [0, 3, 5]
    assert values["context", "sequence_ids"] == [0, 0, 0, 1, 1]
    assert values["context", "slot_tables"] == [[[0, 1], [2, 6]], [[0, -1], [1, -1]]]
    assert values["generation", "committed"] == [9]
    assert values["generation", "slot_tables"][0][0][:4] == [3, 4, 5, -1]
    assert (step.tokens, step.padded_tokens, step.bucket) == (6, 6, (1, 1))
    assert step.rows == {"a": slice(0, 3), "b": slice(3, 5), "c": slice(5, 6)}


def test_generation_pads_to_the_next_bucket(manager):
    step = make_step([Request(name, 2, "generation") for name in "abc"], manager, BUCKETS)
    values, _ = pack(step, manager)
    assert (step.bucket, step.tokens, step.padded_tokens) == ((4, 2), 6, 8)
    assert values["generation", "committed"] == [5, 4, 9, 0]
    assert values["generation", "query_starts"] == [0, 2, 4, 6, 6]
    assert values["generation", "sequence_ids"] == [0, 0, 1, 1, 2, 2, -1, -1]
    tables = np.array(values["generation", "slot_tables"])
    assert tables.shape == (2, 4, manager.table_width)
    assert (tables[:, 3] == -1).all()
    assert (tables[:, :3, 0] >= 0).all()


def test_sections_are_aligned_and_do_not_overlap(manager):
    requests = [Request("a", 3), Request("b", 1, "generation"), Request("c", 1, "generation")]
    _, placed = pack(make_step(requests, manager, BUCKETS), manager)
    assert all(at.offset % 4 == 0 for at in placed)
    assert all(before.stop <= after.offset for before, after in pairwise(placed))


def test_generation_sections_stay_where_they_are_beside_any_context(manager):
    generation = [Request("b", 1, "generation"), Request("c", 1, "generation")]
    alone = pack(make_step(generation, manager, BUCKETS), manager)[1]
    beside = pack(make_step([Request("a", 7), *generation], manager, BUCKETS), manager)[1]
    assert [at for at in beside if at.phase == "generation"] == list(alone)


def test_a_padding_step_touches_no_page(manager):
    values, _ = pack(padding_step(4, 2, manager), manager)
    assert (np.array(values["generation", "slot_tables"]) == -1).all()
    assert values["generation", "sequence_ids"] == [-1] * 8
    assert values["generation", "query_starts"] == [0] * 5


def test_capacity_holds_every_step(manager):
    packer = StepPacker(dict.fromkeys(PHASES, SECTIONS), manager)
    capacity = packer.capacity(LIMITS, BUCKETS)
    for sequences in range(1, LIMITS.max_sequences + 1):
        step = padding_step(next_bucket(sequences, BUCKETS), LIMITS.max_tokens // sequences, manager)
        assert packer.place(step)[-1].stop <= capacity
    with pytest.raises(KvcError) as caught:
        pack(padding_step(50, 50, manager), manager)
    assert caught.value.diagnostics[0].code == "KVC503"


def test_buckets():
    assert [next_bucket(n, BUCKETS) for n in (1, 2, 3, 4, 5)] == [1, 2, 4, 4, 5]


@pytest.mark.parametrize(
    ("requests", "code"),
    [
        ([], "KVC504"),
        ([Request("a", 0)], "KVC504"),
        ([Request("a", -3)], "KVC504"),
        ([Request("a", 1.5)], "KVC504"),
        ([Request("a", 1, "decode")], "KVC504"),
        ([Request("a", 1, "generation"), Request("b", 3)], "KVC504"),
        ([Request("a", 1, "generation"), Request("b", 2, "generation")], "KVC504"),
        ([Request("a", 1), Request("a", 1, "generation")], "KVC502"),
        ([Request("x", 1)], "KVC501"),
    ],
)
def test_refused_requests(requests, code, manager):
    with pytest.raises(KvcError) as caught:
        make_step(requests, manager, BUCKETS)
    assert caught.value.diagnostics[0].code == code


def test_a_section_of_a_newer_program_is_named(manager):
    with pytest.raises(KvcError) as caught:
        StepPacker({"context": (Section("draft_ids", ("T",)),)}, manager)
    assert "draft_ids" in str(caught.value)
