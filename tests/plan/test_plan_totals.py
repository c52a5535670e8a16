"""Totals that are known from elsewhere, and what the planner refuses."""

from dataclasses import replace

import pytest
from plan_specs import GIB, make_run, make_spec

from kvc.diagnostics import KvcError
from kvc.encodings import ENCODINGS, Encoding, PartFormat
from kvc.plan import buffers, make_plan
from kvc.specs.resolved import Coverage, Memory

GOLDEN = {
    "llama-3.1-8b bf16": (make_run(0, 32), 131_072),
    "llama-3.1-8b fp8": (make_run(0, 32, encoding="fp8"), 65_536),
    "smollm2-135m bf16": (make_run(0, 30, kv_heads=3, head_dim=64), 23_040),
    "qwen3-8b bf16": (make_run(0, 36), 147_456),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes_per_token(name):
    run, expected = GOLDEN[name]
    plan = make_plan(make_spec(run))
    assert plan.bytes_per_token == expected
    assert plan.bytes_per_sequence == 0
    assert plan.to_json()["bytes_per_token"] == expected


def test_one_group_one_lifecycle_one_pool_for_equal_layers():
    plan = make_plan(make_spec(make_run(0, 32)))
    (group,), (lifecycle,), (pool,), (pool_group,) = plan.layer_groups, plan.lifecycles, plan.pools, plan.pool_groups
    assert (group.name, group.layers, group.page_bytes) == ("gqa0", tuple(range(32)), 131_072)
    assert (group.coverage, group.encoding, str(group.source)) == ("full", "bf16", "b.yaml:8:3")
    assert lifecycle.pools == (0,)
    assert (pool.pages_per_slot, pool.slot_bytes) == (32, 32 * 131_072)
    assert (pool_group.slot_sizes, pool_group.num_slots, plan.capacity) == ((32 * 131_072,), None, None)
    assert [buffer.index for buffer in plan.buffers] == list(range(32))


def test_windows_cost_fixed_bytes_and_share_the_slots_of_equal_full_layers():
    """gpt-oss-20b: 12 full and 12 window layers of 8 heads of 64; a window of 128 holds 3 pages of 64."""
    window = {1: {"coverage": Coverage("window", 128)}}
    runs = [make_run(i, 1, head_dim=64, tokens_per_page=64, **window.get(i % 2, {})) for i in range(24)]
    plan = make_plan(make_spec(*runs, max_seq_len=131_072))
    assert (plan.bytes_per_token, plan.bytes_per_sequence) == (24_576, 4_718_592)
    assert len(plan.layer_groups) == len(plan.lifecycles) == 2
    assert [group.lifecycles for group in plan.pool_groups] == [(0, 1)]
    assert plan.smallest_request_bytes == 2 * plan.pool_groups[0].slot_bytes


def test_pools_of_a_lifecycle_descend_by_slot_size():
    plan = make_plan(make_spec(make_run(0, 2), make_run(2, 30, encoding="fp8")))
    assert plan.pool_groups[0].slot_sizes == (30 * 65_536, 2 * 131_072)
    assert [group.pool for group in plan.layer_groups] == [1, 0]
    assert {buffer.layer: (buffer.pool, buffer.index) for buffer in plan.buffers}[31] == (0, 29)


def test_draft_layers_are_a_lifecycle_of_their_own_and_add_their_row_bytes():
    target = make_plan(make_spec(make_run(0, 32)))
    both = make_plan(make_spec(make_run(0, 32), make_run(32, 1, domain="draft", tokens_per_page=64)))
    assert both.bytes_per_token - target.bytes_per_token == 4096
    assert [(cycle.domain, cycle.tokens_per_page) for cycle in both.lifecycles] == [("target", 32), ("draft", 64)]
    assert [group.lifecycles for group in both.pool_groups] == [(0,), (1,)]


def test_layers_of_two_kinds_do_not_explode_into_a_group_a_layer():
    runs = [make_run(i, 1, encoding="fp8" if i % 2 else "bf16") for i in range(46)]
    plan = make_plan(make_spec(*runs))
    assert [len(group.layers) for group in plan.layer_groups] == [23, 23]
    assert len(plan.pools) == 2


def test_a_run_of_3200_layers_is_laid_out_once(monkeypatch):
    calls = []
    monkeypatch.setattr(buffers, "page_layout", lambda *args: calls.append(args) or original(*args))
    original = __import__("kvc.encodings").encodings.page_layout
    plan = make_plan(make_spec(make_run(0, 3200)))
    assert len(calls) == 1
    assert len(plan.buffers) == 3200


def test_capacity_in_whole_slots():
    plan = make_plan(make_spec(make_run(0, 32), memory=Memory(139 * GIB, 0.9, 10 * GIB)))
    capacity, group = plan.capacity, plan.pool_groups[0]
    assert capacity.cache_bytes == 129 * GIB * 9 // 10
    assert group.num_slots == capacity.cache_bytes // group.slot_bytes
    assert capacity.tokens == group.num_slots * 32
    assert capacity.used_bytes == group.num_slots * group.slot_bytes
    assert capacity.sequences_at_max_len == group.num_slots // 64
    assert plan.notes == ()


def test_pages_limit_sequences_when_the_length_is_not_whole_pages():
    plan = make_plan(make_spec(make_run(0, 32), max_seq_len=33), 10 * 32 * 131_072)
    assert plan.pool_groups[0].num_slots == 10
    assert (plan.capacity.tokens, plan.capacity.sequences_at_max_len) == (320, 5)


def test_a_given_device_replaces_the_size_only():
    spec = make_spec(make_run(0, 32), memory=Memory(80 * GIB, 0.5, 10 * GIB))
    assert make_plan(spec, 30 * GIB).capacity.cache_bytes == 10 * GIB
    assert make_plan(spec).capacity.cache_bytes == 35 * GIB


def test_notes_say_what_the_capacity_leaves_out():
    spec = make_spec(make_run(0, 32), max_seq_len=1_000_000)
    assert "--device" in make_plan(spec).notes[0]
    whole, reserve, longest = make_plan(spec, 2**30).notes
    assert "whole device" in whole
    assert "weights" in reserve
    assert "1,000,000 tokens" in longest


def test_a_device_too_small_for_one_slot_holds_nothing():
    plan = make_plan(make_spec(make_run(0, 32)), 1000)
    assert (plan.capacity.tokens, plan.capacity.used_bytes, plan.pool_groups[0].num_slots) == (0, 0, 0)


def test_rounding_is_noted_and_counted():
    run = make_run(0, 2, kv_heads=1, head_dim=3, encoding="fp8", tokens_per_page=2)
    plan = make_plan(make_spec(run))
    assert (plan.layer_groups[0].row_bytes, plan.layer_groups[0].page_bytes) == (6, 32)
    assert plan.bytes_per_token == 32
    assert plan.notes[-1] == "rounding: 20 of the 32 bytes of a page of gqa0 hold nothing"


def test_fractional_bytes_per_token_stay_exact():
    plan = make_plan(make_spec(make_run(0, 1, kv_heads=1, head_dim=1, encoding="fp8", tokens_per_page=24)))
    assert plan.bytes_per_token.as_integer_ratio() == (8, 3)
    data = plan.to_json()
    assert (data["bytes_per_token"], data["bytes_per_token_exact"]) == (8 / 3, "8/3")


def code_of(spec, device_bytes=None):
    with pytest.raises(KvcError) as caught:
        make_plan(spec, device_bytes)
    (found,) = caught.value.diagnostics
    return found


def test_two_page_sizes_in_one_lifecycle_are_refused():
    found = code_of(make_spec(make_run(0, 2), make_run(2, 1, tokens_per_page=64, line=9)))
    assert (found.code, found.source.line) == ("KVC202", 9)


def test_a_width_that_does_not_divide_is_refused(monkeypatch):
    grouped = Encoding("grouped", "grouped", (PartFormat("scales", "e4m3", 8, group=16),), "none", "for this test")
    monkeypatch.setitem(ENCODINGS, "grouped", grouped)
    found = code_of(make_spec(make_run(0, 2, head_dim=65, encoding="grouped")))
    assert found.code == "KVC201"
    assert "65 values" in found.message


def test_a_device_no_larger_than_the_reserve_is_refused():
    spec = make_spec(make_run(), memory=Memory(80 * GIB, 0.9, 10 * GIB))
    assert code_of(spec, 10 * GIB).code == "KVC203"
    assert code_of(make_spec(make_run(), memory=Memory(GIB, 0.9, 2 * GIB))).code == "KVC203"
    assert code_of(replace(spec, memory=None), 0).code == "KVC203"
