"""What holds for every plan, against brute force."""

import json
from collections import defaultdict
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st
from plan_specs import MEMORIES, specs

from kvc.plan import make_plan
from kvc.plan.capacity import bytes_for_lengths, bytes_for_tokens, mix_of, tokens_for_bytes
from kvc.plan.stale import stale_pages
from kvc.plan.types import Plan
from kvc.specs.resolved import Coverage

BITS = {"bf16": 16, "fp8": 8, "fp32": 32}


def brute_page_bytes(run):
    """Bytes of a page, plane by plane, each rounded up to 16."""
    widths = (run.shape.kv_heads * run.shape.head_dim, run.shape.kv_heads * run.shape.v_head_dim)
    return sum((width * BITS[run.encoding] // 8 * run.tokens_per_page + 15) // 16 * 16 for width in widths)


@given(specs())
def test_json_round_trip(spec):
    plan = make_plan(spec)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@given(specs())
def test_a_slot_is_its_buffers_side_by_side(spec):
    """Lay the pages of one slot of every pool on its bytes: none overlaps the next, none leaves a gap."""
    plan = make_plan(spec)
    pages = {layer: (brute_page_bytes(run), run.coverage) for run in spec.runs for layer in run.layers}
    taken = defaultdict(list)
    for buffer in plan.buffers:
        size, coverage = pages.pop(buffer.layer)
        owner = plan.lifecycles[plan.pools[buffer.pool].lifecycle]
        assert (buffer.page_bytes, owner.coverage) == (size, coverage)
        taken[buffer.pool].append((buffer.index * size, (buffer.index + 1) * size))
    assert not pages
    for pool in plan.pools:
        edges = sorted(taken.pop(pool.id))
        starts, stops = [start for start, _ in edges], [stop for _, stop in edges]
        assert [*starts, pool.slot_bytes] == [0, *stops]
    assert not taken


@given(specs())
def test_ids_point_at_each_other(spec):
    plan = make_plan(spec)
    for group in plan.pool_groups:
        assert list(group.slot_sizes) == sorted(group.slot_sizes, reverse=True)
        assert sum(group.slot_sizes) == group.slot_bytes
        for lifecycle in group.lifecycles:
            pools = [plan.pools[pool] for pool in plan.lifecycles[lifecycle].pools]
            assert tuple(pool.slot_bytes for pool in pools) == group.slot_sizes
            assert {(pool.lifecycle, pool.pool_group) for pool in pools} == {(lifecycle, group.id)}
            assert all(pool.pages_per_slot * pool.page_bytes == pool.slot_bytes for pool in pools)
    assert len({group.slot_sizes for group in plan.pool_groups}) == len(plan.pool_groups)
    assert len({(cycle.coverage, cycle.domain) for cycle in plan.lifecycles}) == len(plan.lifecycles)
    layers = [layer for group in plan.layer_groups for layer in group.layers]
    assert sorted(layers) == list(range(spec.num_layers))


@given(specs(), st.randoms(use_true_random=False))
def test_totals_do_not_depend_on_layer_order(spec, random):
    order = list(spec.runs)
    random.shuffle(order)
    first, runs = 0, []
    for run in order:
        runs.append(replace(run, first=first))
        first += run.count
    one, other = make_plan(spec), make_plan(replace(spec, runs=tuple(runs)))
    assert (one.bytes_per_token, one.bytes_per_sequence) == (other.bytes_per_token, other.bytes_per_sequence)
    assert one.capacity == other.capacity
    assert {g.slot_sizes: g.num_slots for g in one.pool_groups} == {
        g.slot_sizes: g.num_slots for g in other.pool_groups
    }


@given(specs(), st.integers(0, 5000), st.integers(0, 3))
def test_slots_equal_a_simulated_sequence(spec, tokens, others):
    """Decode a sequence token by token; the most pages it ever held is what the plan charges for it."""
    plan = make_plan(replace(spec, memory=None))
    tokens = tokens % 400
    held = 0
    for lifecycle in plan.lifecycles:
        size, slot = lifecycle.tokens_per_page, plan.pool_groups[lifecycle.pool_group].slot_bytes
        live = (length // size + 1 - len(stale_pages(lifecycle.coverage, length, size)) for length in range(tokens))
        held += slot * max(live, default=0)
    assert bytes_for_tokens(plan, tokens) == held
    assert bytes_for_lengths(plan, [tokens] * others) == held * others


@given(specs(), st.integers(0, 10**8), st.integers(1, 5000))
def test_bytes_to_tokens_to_bytes(spec, nbytes, max_len):
    plan = make_plan(spec)
    tokens = tokens_for_bytes(plan, nbytes, max_len)
    assert bytes_for_tokens(plan, tokens, max_len) <= nbytes < bytes_for_tokens(plan, tokens + 1, max_len)


@given(specs(), st.integers(0, 10**8))
def test_bytes_to_tokens_to_bytes_of_one_sequence(spec, nbytes):
    plan = make_plan(spec)
    tokens = tokens_for_bytes(plan, nbytes)
    if tokens is None:
        assert plan.bytes_per_token == 0
        assert bytes_for_tokens(plan, 10**12) <= nbytes
    else:
        assert bytes_for_tokens(plan, tokens) <= nbytes < bytes_for_tokens(plan, tokens + 1)


@given(specs(), st.integers(0, 10**6), st.none() | st.integers(1, 5000))
def test_tokens_to_bytes_to_tokens(spec, tokens, max_len):
    plan = make_plan(spec)
    nbytes = bytes_for_tokens(plan, tokens, max_len)
    again = tokens_for_bytes(plan, nbytes, max_len)
    assume(again is not None)
    assert again >= tokens
    assert bytes_for_tokens(plan, again, max_len) == nbytes


@given(st.integers(0, 10**6), st.integers(1, 5000))
def test_a_mix_holds_all_tokens(tokens, max_len):
    mix = mix_of(tokens, max_len)
    assert sum(length * count for length, count in mix.items()) == tokens
    assert max(mix) <= max_len


@given(specs())
def test_capacity_is_known_where_the_memory_is(spec):
    plan = make_plan(spec)
    assert (plan.capacity is None) == (spec.memory is None)
    assert all((group.num_slots is None) == (spec.memory is None) for group in plan.pool_groups)


@given(specs(memory=MEMORIES))
def test_capacity_agrees_with_the_pools(spec):
    plan = make_plan(spec)
    used = sum(group.num_slots * group.slot_bytes for group in plan.pool_groups)
    assert used == plan.capacity.used_bytes <= plan.capacity.cache_bytes <= plan.capacity.memory_bytes
    count, longest = plan.capacity.sequences_at_max_len, plan.capacity.max_seq_len
    assert bytes_for_lengths(plan, {longest: count}) <= plan.capacity.cache_bytes
    assert bytes_for_lengths(plan, {longest: count + 1}) > plan.capacity.cache_bytes
    assert plan.capacity.tokens >= count * longest


@given(specs(coverages=(Coverage(),), memory=MEMORIES))
def test_full_layers_fill_every_page_of_every_slot(spec):
    plan = make_plan(spec)
    (group,), (lifecycle,) = plan.pool_groups, plan.lifecycles
    assert plan.capacity.tokens == group.num_slots * lifecycle.tokens_per_page
    assert group.num_slots == plan.capacity.cache_bytes // group.slot_bytes
    assert group.slot_bytes == plan.bytes_per_token * lifecycle.tokens_per_page
