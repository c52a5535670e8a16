"""What caches stage: the identities of mixed caches, bit for bit, on a schedule of several steps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_caches import equal, play, retained, schedules
from staged_engine import Engine, pair, without_twin

some_pairs = pytest.mark.parametrize(
    ("kind", "low", "high"),
    [("gqa", "nvfp4", "bf16"), ("gqa", "fp8", "bf16"), ("mla", "nvfp4", "fp8"), ("mla", "nvfp4_rope_fp8", "fp8")],
)


def staged(kind, caches, schedule):
    """Everything that was staged in a schedule."""
    engine = Engine(caches[1], caches[0], kind)
    play(caches[1], schedule, engine.step)
    return engine.staged


@some_pairs
@settings(max_examples=3, deadline=None)
@given(schedule=schedules(), page=st.sampled_from([1, 4]), dtype=st.sampled_from(["fp32", "bf16"]))
def test_staging_at_the_ends(kind, low, high, schedule, page, dtype):
    """Everything retained is the plain high cache; no page in the twin is the plain low one."""
    mixed = pair(kind, low, retained(1000, 1, high), dtype, page)
    assert equal(staged(kind, mixed, schedule), staged(kind, pair(kind, high, "", dtype, page), schedule))
    mixed = pair(kind, low, retained(8, 8, high), dtype, page)
    without_twin(mixed[1])
    assert equal(staged(kind, mixed, schedule), staged(kind, pair(kind, low, "", dtype, page), schedule))


@some_pairs
@settings(max_examples=3, deadline=None)
@given(schedule=schedules(), kept=st.sampled_from([(3, 6), (0, 13)]))
def test_neither_page_size_nor_passes_change_what_is_staged(kind, low, high, schedule, kept):
    twin = retained(*kept, high)
    found = [staged(kind, pair(kind, low, twin, page=page), schedule) for page in (1, 4, 16)]
    found.append(staged(kind, pair(kind, low, twin, passes=0), schedule))
    assert all(equal(found[0], other) for other in found[1:])


@some_pairs
def test_own_rows_are_staged_as_computed_in_context_and_as_stored_in_generation(kind, low, high):
    """Of the same rows: so the phases differ, and the tests above can fail."""
    rows = []
    for phase in ("context", "generation"):
        caches = pair(kind, low)
        rows.append(staged(kind, caches, [([("a", 3, "context")], {}), ([("a", 2, phase)], {"a": 2})]))
    context, generation = (found[-1] for found in rows)
    assert torch.equal(context[:3], generation[:3]) and not torch.equal(context[3:], generation[3:])
