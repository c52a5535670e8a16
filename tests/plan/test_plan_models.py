"""Plans of real models and of the cases that hybrids go wrong in."""

import json
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

from kvc.diagnostics import KvcError
from kvc.plan import make_plan
from kvc.plan.capacity import bytes_for_tokens, tokens_for_bytes
from kvc.plan.compare import compare
from kvc.plan.explain import explain
from kvc.plan.fit import answer, parse_question
from kvc.plan.stale import page_limit
from kvc.specs import library_specs, load_spec, load_spec_text

sys.path.insert(0, str(Path(__file__).parents[1] / "specs"))
from spec_kinds import LAYERS, spec_text

GIB = 2**30
FULL = "kind: gqa, heads: 16, kv_heads: 8, head_dim: 128, rope: none"
WINDOW = FULL + ", window: 1024"
BF16, FP8 = "encoding: bf16, tokens_per_page: 64", "encoding: fp8, tokens_per_page: 64, scales: {source: unit}"


def plan_of(*layers, device=None, tensor_parallel=None, **other):
    return make_plan(load_spec_text(spec_text(*layers, **other), "m.yaml", tensor_parallel), device)


# name: bytes a token, bytes a sequence
TOTALS = {
    "deepseek-v2-lite": (31_104, 0),
    "deepseek-v3": (19_764 + 576, 15_740_928),
    "deepseek-v3.2": (48_068, 0),
    "glm-5": (78 * 788, 0),
    "gpt-oss-20b": (24_576, 4_718_592),
    "kimi-k2": (70_272, 0),
    "qwen3-next": (24_576, 36 * (8192 * 3 * 2 + 32 * 128 * 128 * 4)),
    "kimi-linear": (6 * 1152, 21 * (3 * 4096 * 3 * 2 + 32 * 128 * 128 * 4)),
    "gemma-3": (4 * 4096, 22 * 65 * 64 * 4096),
}


@pytest.mark.parametrize("name", TOTALS)
def test_totals(name):
    plan = make_plan(load_spec(name))
    assert (plan.bytes_per_token, plan.bytes_per_sequence) == TOTALS[name]


def test_every_library_spec_is_planned_and_explained_in_well_under_a_second():
    for name in library_specs():
        start = time.perf_counter()
        spec = load_spec(name)
        explain(spec, make_plan(spec, 139 * GIB))
        assert time.perf_counter() - start < 1, name


@pytest.mark.parametrize(("encoding", "total"), [("bf16", 70_272), ("fp8", 35_136), ("nvfp4", 19_764)])
def test_61_latent_layers(encoding, total):
    text = library_specs()["kimi-k2"].read_text().replace("encoding: bf16", f"encoding: {encoding}")
    scales = "" if encoding == "bf16" else "cache:\n  scales: {source: unit}"
    assert make_plan(load_spec_text(text.replace("cache:", scales or "cache:"))).bytes_per_token == total


def test_a_draft_adds_exactly_its_row_bytes():
    text = library_specs()["deepseek-v3.2"].read_text()
    draft = "draft: {kind: mtp, layers: 1, max_draft_tokens: 1, encoding: fp8_ds_mla}\n"
    before, after = (make_plan(load_spec_text(source)) for source in (text, text + draft))
    assert (before.bytes_per_token, after.bytes_per_token) == (48_068, 48_856)
    assert [cycle.domain for cycle in after.lifecycles] == ["target", "draft"]


def test_states_are_listed():
    plan = make_plan(load_spec("qwen3-next"))
    (group,) = [group for group in plan.layer_groups if group.states]
    assert len(group.layers) == 36
    states = group.to_json()["states"]
    assert [(state["name"], state["shape"], state["dtype"], state["bytes"]) for state in states] == [
        ("conv", [8192, 3], "bf16", 49_152),
        ("delta", [32, 128, 128], "fp32", 2_097_152),
    ]
    assert type(plan).from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_v4_counts_windows_compressed_rows_keys_and_waiting_tokens():
    """Pages of 256 tokens: 64 rows of 4 or 2 of 128, in multiples of 576; 3 pages of the window of 128 are 2."""
    plan = make_plan(load_spec("deepseek-v4"))
    pages = {group.role + "/" + str(group.rows_per_page): group.page_bytes for group in plan.layer_groups}
    assert pages["history/64"] == 37_440 and pages["history/2"] == 1728 and pages["index_key/64"] == 64 * 132
    assert plan.bytes_per_token == Fraction(20 * (37_440 + 64 * 132) + 23 * 1728, 256)
    waiting = 20 * (2 * 8 * 1024 + 2 * 8 * 256) * 4 + 23 * 2 * 128 * 512 * 4
    assert plan.bytes_per_sequence == 43 * 2 * -(-584 * 256 // 576) * 576 + waiting


def test_kinds_do_not_explode_into_a_group_a_layer():
    """46 layers: 30, 10, 5 and 1 of four kinds, by turns."""
    kinds = [FULL] * 30 + [WINDOW] * 10 + [FULL.replace("128", "64") + ", chunk: 512"] * 5 + [LAYERS["kda"]]
    mixed = [kinds[i * 17 % 46] for i in range(46)]
    plan = plan_of(*mixed, cache=BF16)
    assert sorted(len(group.layers) for group in plan.layer_groups) == [1, 5, 10, 30]
    assert len(plan.lifecycles) == len(plan.pools) == 4


def test_20_full_and_30_window_layers_need_no_padding():
    plan = plan_of(*[WINDOW, WINDOW, WINDOW, FULL, FULL] * 10, cache=BF16)
    assert sorted(len(group.layers) for group in plan.layer_groups) == [20, 30]
    assert sum(pool.pages_per_slot for pool in plan.pools) == len(plan.buffers) == 50
    assert all(group.rounding_bytes == 0 for group in plan.layer_groups)


def test_a_request_of_12_tokens_on_a_hybrid_in_pages_and_percent():
    plan = plan_of(*[FULL, LAYERS["delta"]] * 4, cache=BF16, device=GIB)
    fit = answer(plan, parse_question("sequences=1@12", 1024), 1024)
    assert [use.slots for use in fit.groups] == [1, 1]
    assert [use.percent for use in fit.groups] == [100 / group.num_slots for group in plan.pool_groups]
    assert fit.fits and fit.nbytes == plan.smallest_request_bytes


def test_the_gain_of_fp8_is_stated_for_slope_and_for_fixed_bytes():
    """Keys and values halve, states do not."""
    plans = [plan_of(FULL, WINDOW, "delta", cache=cache, max_seq_len=65_536) for cache in (BF16, FP8)]
    rows = {row.name: row for row in compare(plans)}
    assert rows["bytes per token (slope)"].ratios == (1.0, 0.5)
    state = next(group.bytes_per_sequence for group in plans[0].layer_groups if group.states)
    window = 17 * 64 * 4096
    assert rows["bytes per sequence (fixed)"].values == (window + state, window // 2 + state)


@pytest.mark.parametrize("pages", [1, 2, 7])
def test_whole_pages_of_tokens_fit_in_as_many_pages(pages):
    plan = plan_of(FULL, cache=BF16)
    slot = plan.pool_groups[0].slot_bytes
    assert tokens_for_bytes(plan, pages * slot) == pages * 64
    assert bytes_for_tokens(plan, pages * 64) == pages * slot
    drafting = plan_of(FULL, cache=BF16, more="draft: {kind: mtp, layers: 1, max_draft_tokens: 3, encoding: bf16}")
    assert (
        tokens_for_bytes(
            drafting, pages * sum(group.slot_bytes * len(group.lifecycles) for group in drafting.pool_groups)
        )
        == pages * 64 - 3
    )


def test_drafts_widen_windows_twins_and_states():
    more = "draft: {kind: mtp, layers: 1, max_draft_tokens: 5, encoding: bf16}"
    cache = "encoding: nvfp4, tokens_per_page: 16, scales: {source: unit}, retain: {first: 8, last: 30, encoding: bf16}"
    plan = plan_of(FULL, FULL + ", window: 64", "kda", cache=cache, more=more)
    held = {cycle.coverage.kind: plan.slots_of(cycle, 1000) for cycle in plan.lifecycles if cycle.domain == "target"}
    assert held == {"full": 63, "window": -(-(63 + 5) // 16) + 1, "recurrent": 6, "first_last": 1 + -(-35 // 16) + 1}
    assert [cycle.domain for cycle in plan.lifecycles][-2:] == ["draft", "target"], "twins come last"


def test_a_rolled_back_draft_shares_slots_as_it_is_told():
    layer = f"layer: {{{FULL}}}"
    draft = f"draft: {{kind: eagle, layers: 2, max_draft_tokens: 3, encoding: bf16, {layer}, pool: POOL}}"
    groups = {}
    for pool in ("auto", "target", "own"):
        plan = plan_of(FULL, FULL, cache=BF16, more=draft.replace("POOL", pool))
        groups[pool] = [group.lifecycles for group in plan.pool_groups]
    assert groups == {"auto": [(0, 1)], "target": [(0, 1)], "own": [(0,), (1,)]}
    with pytest.raises(KvcError) as caught:
        plan_of(FULL, cache=BF16, more=draft.replace("POOL", "target"))
    assert caught.value.diagnostics[0].code == "KVC206"


def test_shared_keys_and_values_cost_nothing():
    alone = plan_of(FULL, FULL, cache=BF16)
    shared = plan_of(FULL, FULL, FULL + ", shares_kv_of: 1", cache=BF16)
    assert shared.bytes_per_token == alone.bytes_per_token


def test_an_indexer_that_is_shared_costs_no_key():
    shared = LAYERS["dsa"].replace("index_key", "index_key, shared: true")
    assert plan_of("dsa", shared).bytes_per_token == plan_of("dsa", "dsa").bytes_per_token - 132


def test_pool_ratio_divides_the_cache_by_lifecycle():
    memory = "memory: {device: 1GiB, free_fraction: 1.0, pool_ratio: RATIO}"
    layers = (FULL, FULL, WINDOW)
    plan = plan_of(*layers, cache=BF16, more=memory.replace("RATIO", "[3, 1]"), max_seq_len=4096)
    full, window = plan.pool_groups
    assert full.num_slots == GIB * 3 // 4 // full.slot_bytes and window.num_slots == GIB // 4 // window.slot_bytes
    most = min(full.num_slots // 64, window.num_slots // 17)
    assert plan.capacity.sequences_at_max_len == most
    derived = plan_of(*layers, cache=BF16, more="memory: {device: 1GiB, free_fraction: 1.0}", max_seq_len=4096)
    assert plan.capacity.tokens <= derived.capacity.tokens
    with pytest.raises(KvcError) as caught:
        plan_of(*layers, cache=BF16, more=memory.replace("RATIO", "[3]"))
    assert caught.value.diagnostics[0].code == "KVC205"


@pytest.mark.parametrize("layer", [name for name in LAYERS if name not in ("mla", "dsa", "v4", "v4 window")])
@pytest.mark.parametrize("ranks", [2, 4])
def test_shards_sum_to_the_whole(layer, ranks):
    if (layer, ranks) == ("mamba2", 4):
        pytest.skip("its two groups are copied over four ranks")
    whole, part = plan_of(layer), plan_of(layer, tensor_parallel=ranks)
    assert part.layer_groups[0].shards == ranks and part.tensor_parallel == ranks
    assert ranks * part.bytes_per_token == whole.bytes_per_token
    assert ranks * part.bytes_per_sequence == whole.bytes_per_sequence


@pytest.mark.parametrize("layer", ["mla", "dsa", "v4", "v4 window"])
def test_latents_are_whole_on_every_rank(layer):
    whole, part = plan_of(layer), plan_of(layer, tensor_parallel=4)
    assert part.bytes_per_token == whole.bytes_per_token and part.bytes_per_sequence == whole.bytes_per_sequence
    assert any("is whole on each of 4 ranks" in note for note in part.notes)


def test_more_ranks_than_kv_heads_copy_them():
    plan = plan_of("gqa", tensor_parallel=8)
    assert plan.bytes_per_token == plan_of("gqa").bytes_per_token / 4
    assert any("divide into 4, 2 copies each" in note for note in plan.notes)


def test_everything_retained_is_noted():
    cache = (
        "encoding: nvfp4, tokens_per_page: 16, scales: {source: unit}, retain: {first: 512, last: 512, encoding: bf16}"
    )
    plan = plan_of(FULL, cache=cache)
    assert any("everything is retained" in note for note in plan.notes)


def test_what_stands_beside_the_pools():
    rope = "rope: {kind: default, theta: 10000}"
    plan = plan_of(FULL.replace("rope: none", rope), cache="encoding: fp8, tokens_per_page: 64, scales: {source: unit}")
    beside = plan.overheads
    assert (beside.scale_bytes, beside.rope_bytes) == (8, 1024 * 128 * 4)
    assert beside.table_bytes == (1 + 1) * 4 * 16 * 4
    assert (beside.null_page_bytes, beside.scratch_bytes) == (0, 0)
    assert plan_of("mla").overheads.scratch_bytes is None


def test_a_twin_of_compressed_rows_counts_source_tokens():
    cache = (
        "encoding: nvfp4, tokens_per_page: 64, scales: {source: unit}, "
        "retain: {first: 64, last: 256, encoding: fp8, scales: {source: unit}}"
    )
    plan = plan_of("v4", cache=cache)
    (twin,) = [group for group in plan.layer_groups if group.role == "twin"]
    assert (twin.rows_per_page, twin.page_bytes) == (16, 16 * 64)
    assert twin.bytes_per_sequence == twin.page_bytes * page_limit(plan.lifecycles[twin.lifecycle].coverage, 64)
    assert [group.encoding for group in plan.layer_groups if group.role == "window"] == ["fp8"]
