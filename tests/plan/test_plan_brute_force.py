"""Plans of every layer kind against a brute-force allocation of the same schedule."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvc.plan import make_plan
from kvc.plan.capacity import bytes_for_tokens, tokens_for_bytes
from kvc.plan.optimise import Costs, optimise
from kvc.plan.stale import held_pages, page_limit, stale_pages
from kvc.specs import load_spec, load_spec_text
from kvc.specs.resolved import Coverage

sys.path.insert(0, str(Path(__file__).parents[1] / "specs"))
from spec_kinds import LAYERS, spec_text


def needed_rows(coverage, committed):
    """Rows that the token at ``committed`` or a later one reads, of those before it: by the coverage's definition."""
    rows = range(committed)
    if coverage.kind == "chunk":
        return [row for row in rows if row // coverage.window == committed // coverage.window]
    if coverage.window is None:
        return list(rows)
    return [row for row in rows if row < coverage.keep_first or row > committed - coverage.window]


def most_pages(coverage, tokens, size, drafted):
    """Decode token by token with ``drafted`` more in flight each time; the most pages that were held at once."""
    most = 0
    for committed in range(tokens):
        in_flight = range(committed, committed + drafted + 1)
        most = max(most, len({row // size for row in (*needed_rows(coverage, committed), *in_flight)}))
    return most


COVERAGES = st.one_of(
    st.just(Coverage()),
    st.just(Coverage("compressed", ratio=4)),
    st.builds(Coverage, st.just("window"), st.integers(1, 40)),
    st.builds(Coverage, st.just("chunk"), st.integers(1, 40)),
)


@given(COVERAGES, st.integers(0, 130), st.integers(1, 17), st.integers(0, 6))
def test_held_pages(coverage, tokens, size, drafted):
    assert held_pages(coverage, tokens, size, drafted) == most_pages(coverage, tokens, size, drafted)


@given(st.integers(1, 40), st.integers(0, 150), st.integers(1, 9))
def test_stale_pages_of_chunks(chunk, committed, size):
    coverage = Coverage("chunk", chunk)
    wanted = {row // size for row in needed_rows(coverage, committed)}
    stale = [page for page in range(committed // size) if page not in wanted]
    assert list(stale_pages(coverage, committed, size)) == stale


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 5))
def test_the_page_limit_of_chunks_is_reached_and_never_passed(chunk, size, drafted):
    coverage = Coverage("chunk", chunk)
    long = chunk * size + chunk
    assert page_limit(coverage, size, drafted) == most_pages(coverage, long, size, drafted)


CACHES = ("encoding: bf16", "encoding: fp8, scales: {source: unit}")
MIXED = "encoding: nvfp4, scales: {source: unit}, retain: {first: 8, last: 24, encoding: fp8, scales: {source: unit}}"
DRAFT = "draft: {kind: mtp, layers: 2, max_draft_tokens: 3, encoding: bf16}"


@st.composite
def specs(draw):
    """Any layers in any order, plain or mixed, with or without a draft."""
    layers = [*draw(st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=6)), "gqa"]
    cache = f"{draw(st.sampled_from((*CACHES, MIXED)))}, tokens_per_page: {draw(st.sampled_from([16, 32, 64]))}"
    return spec_text(*layers, cache=cache, more=draw(st.sampled_from(["", DRAFT])))


def allocated(plan, tokens):
    """Bytes of a sequence that decodes to ``tokens``, buffer by buffer."""
    pages = {
        cycle.id: 1 + plan.draft_tokens
        if cycle.coverage.kind == "recurrent"
        else 1
        if cycle.coverage.kind == "rolling"
        else most_pages(cycle.coverage, tokens, cycle.tokens_per_page, plan.draft_tokens)
        for cycle in plan.lifecycles
    }
    return sum(buffer.page_bytes * pages[plan.pools[buffer.pool].lifecycle] for buffer in plan.buffers)


@given(specs(), st.integers(1, 150))
def test_the_plan_is_a_brute_force_allocation(text, tokens):
    plan = make_plan(load_spec_text(text))
    assert bytes_for_tokens(plan, tokens) == allocated(plan, tokens)
    assert plan.smallest_request_bytes == allocated(plan, 1)


@given(specs(), st.integers(0, 10**7))
def test_bytes_and_tokens_agree(text, nbytes):
    plan = make_plan(load_spec_text(text))
    tokens = tokens_for_bytes(plan, nbytes, 1024)
    assert bytes_for_tokens(plan, tokens, 1024) <= nbytes < bytes_for_tokens(plan, tokens + 1, 1024)


@given(specs())
def test_slope_and_fixed_bytes_are_those_of_the_lifecycles(text):
    plan = make_plan(load_spec_text(text))
    assert plan.bytes_per_token == sum(cycle.bytes_per_token for cycle in plan.lifecycles)
    assert plan.bytes_per_sequence == sum(cycle.bytes_per_sequence for cycle in plan.lifecycles)
    size = max(cycle.tokens_per_page for cycle in plan.lifecycles)
    longer = bytes_for_tokens(plan, 64 * size) - bytes_for_tokens(plan, 32 * size)
    assert longer == plan.bytes_per_token * 32 * size
    assert all(group.rounding_bytes >= 0 for group in plan.layer_groups)


@given(st.permutations(["gqa", "window", "mla", "dsa", "v4", "kda", "chunk", "gqa"]))
def test_totals_do_not_depend_on_layer_order(layers):
    plan, other = (make_plan(load_spec_text(spec_text(*order))) for order in (layers, sorted(layers)))
    assert (plan.bytes_per_token, plan.bytes_per_sequence) == (other.bytes_per_token, other.bytes_per_sequence)
    assert Counter(group.slot_sizes for group in plan.pool_groups) == Counter(
        group.slot_sizes for group in other.pool_groups
    )


@pytest.mark.parametrize("name", ["qwen3-next", "gpt-oss-20b", "deepseek-v4", "gemma-3", "llama-3.1-8b-bf16"])
def test_the_optimiser_takes_the_cheapest_and_says_by_what(name):
    spec = load_spec(name)
    choices = optimise(spec)
    assert [choice.cost for choice in choices] == sorted(choice.cost for choice in choices)
    assert choices[0].reason(choices).startswith(f"chosen: {'/'.join(map(str, choices[0].pages))} tokens a page")
    assert all(choice.wasted_bytes >= 0 and choice.groups >= 1 for choice in choices)
    assert all(choice.groups == 1 for choice in choices if choice.padded)


def test_the_optimiser_follows_its_costs():
    """Where a second pool group costs everything slots are padded; where small requests do, pages are small."""
    text = spec_text("gqa", "gqa", "window", max_seq_len=4096)
    spec = load_spec_text(text)
    assert optimise(spec, Costs(4096, 0.0, 100.0))[0].groups == 1
    free = optimise(spec, Costs(4096, 0.0, 0.0))[0]
    assert not free.padded and free.groups == 2
    small = optimise(spec, Costs(4096, 1e6, 0.0))[0]
    assert small.smallest_bytes == min(choice.smallest_bytes for choice in optimise(spec))


def test_the_optimiser_counts_what_the_plan_counts():
    spec = load_spec("gpt-oss-20b")
    (same,) = [choice for choice in optimise(spec) if choice.pages == (64, 64) and not choice.padded]
    plan = make_plan(spec)
    assert same.smallest_bytes == plan.smallest_request_bytes and same.groups == len(plan.pool_groups)
