"""kvc's rewrites under real `torch.compile` on a CPU: the same bits in outputs and pools, the fused op in the code."""

import operator
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

from kvc import compat
from kvc.integrations.inductor import Rewrites
from kvc.integrations.inductor.in_place import to_functional, to_in_place
from kvc.integrations.inductor.rewrites import rules_digest
from kvc.ops import example_inputs, mla_inputs
from kvc.ops.example_inputs import SHAPES, Shape

SHAPE = replace(SHAPES["plain"], spare_pages=9)
STORED = {"encoding": "fp8", "tokens_per_page": SHAPE.tokens_per_page}
OPS = torch.ops.kvc
Tensors = tuple[torch.Tensor, ...]


@pytest.fixture(autouse=True)
def fresh():
    """Every test compiles anew: what inductor takes from its cache no pass sees."""
    torch._dynamo.reset()
    with torch.no_grad(), config.patch(fx_graph_cache=False):
        yield


def layer(pool: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    """A generation step of one layer as an engine would write it, unfused."""
    q, k, v, table, positions, rows, k_scale, v_scale, page_table, lengths = rest
    q = OPS.rope.default(q, table, positions, layout="half")
    k = OPS.rope.default(k, table, positions, layout="half")
    k8, v8 = OPS.quantize_fp8.default(k, scale=k_scale), OPS.quantize_fp8.default(v, v_scale)
    OPS.store_rows.default(pool, [k8, v8], rows, tokens_per_page=SHAPE.tokens_per_page)
    attention = {"kv_heads": SHAPE.kv_heads, "v_head_dim": SHAPE.v_head_dim, "softmax_scale": 0.2}
    return OPS.gqa_decode.default(q, pool, page_table, lengths, k_scale, v_scale, **STORED, **attention)[0]


def with_other_ops(pool: torch.Tensor, q: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    """q comes late in inductor's order, and code is made for what is around kvc's ops."""
    return layer(pool, q * 2, *rest) + 1


def two_views(memory: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    """Layers whose pools are slots of one tensor."""
    return layer(memory[0], *rest) - layer(memory[1], *rest)


def two_arguments(first: torch.Tensor, second: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    """Layers whose pools are interleaved, as kvc's own are: two arguments that share memory."""
    return layer(first, *rest) - layer(second, *rest)


def example(shape: Shape = SHAPE) -> Tensors:
    """Arguments of `layer`."""
    q, k, v = (example_inputs.activations(shape, name) for name in ("q", "k", "v"))
    scales = (example_inputs.scale_for("fp8", name) for name in ("k", "v"))
    step = (example_inputs.table(shape), example_inputs.positions(shape), example_inputs.rows(shape))
    read = (example_inputs.page_table(shape), example_inputs.lengths(shape))
    return (example_inputs.pool(shape), q, k, v, *step, *scales, *read)


def calls_of(code: list[str]) -> list[str]:
    """The kvc ops that inductor's code calls, in order."""
    return re.findall(r"^ +(?:\w+ = )?torch\.ops\.kvc\.(\w+)\.default\(", "\n".join(code), re.MULTILINE)


def check(
    function: Callable[..., torch.Tensor],
    pools: Callable[[], Tensors],
    rest: Tensors,
    stores: bool = True,
    **how: object,
):
    """Compile with the rewrites and compare outputs and pool bytes with eager; returns the rewrites and the calls."""
    rewrites = Rewrites()
    compiled = torch.compile(function, fullgraph=True, options=rewrites.options(), **how)
    mine, eager = pools(), pools()
    out, code = run_and_get_code(compiled, *mine, *rest)
    expected = function(*eager, *rest)
    assert torch.equal(out, expected) and torch.isfinite(expected).all()
    assert all(torch.equal(a, b) for a, b in zip(mine, eager, strict=True))
    assert torch.equal(mine[0], pools()[0]) is not stores
    return rewrites, calls_of(code)


def test_a_layer_is_fused() -> None:
    pool, *rest = example()
    rewrites, calls = check(with_other_ops, lambda: (pool.clone(),), tuple(rest))
    assert calls == ["append_gqa", "gqa_decode"]
    assert rewrites.fired == {"fuse_rope_quantize": 1, "fuse_append": 1} and not rewrites.misses


def test_dynamic_shapes() -> None:
    """One graph for steps of different size, rewritten once."""
    pool, *rest = example()
    rewrites, calls = check(layer, lambda: (pool.clone(),), tuple(rest), dynamic=True)
    assert calls == ["append_gqa", "gqa_decode"] and not rewrites.misses
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, options=rewrites.options())
    for own in ((2, 2, 2), (3, 3, 3), (1, 1, 1)):
        pool, *rest = example(replace(SHAPE, own=own))
        eager = pool.clone()
        assert torch.equal(compiled(pool, *rest), layer(eager, *rest)) and torch.equal(pool, eager)
    assert len(rewrites.graphs) == 2  # that of `check`, and one for all three


def test_pools_that_share_memory() -> None:
    """Views of one tensor made inside the function, then interleaved views given as two arguments."""
    pool, *rest = example()
    rewrites, calls = check(two_views, lambda: (torch.stack([pool, pool]),), tuple(rest))
    assert calls == ["append_gqa", "gqa_decode"] * 2 and rewrites.fired["fuse_append"] == 2

    def interleaved() -> Tensors:
        memory = torch.stack([pool, pool], 1).flatten(0, 1)
        return memory[0:], memory[1:]

    rows, page_table = rest[5], rest[8]
    rest[5] = rows + rows // SHAPE.tokens_per_page * SHAPE.tokens_per_page
    rest[8] = torch.where(page_table < 0, -1, page_table * 2)
    rewrites, calls = check(two_arguments, interleaved, tuple(rest))
    assert calls == ["append_gqa", "gqa_decode"] * 2 and not rewrites.misses


def other_positions(pool: torch.Tensor, q: torch.Tensor, k: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    """q and k are rotated under different positions."""
    table, positions = rest[1:3]
    q = OPS.rope.default(q, table, positions.flip(0), layout="half")
    k8 = OPS.quantize_fp8.default(OPS.rope.default(k, table, positions, layout="half"), rest[4])
    v8 = OPS.quantize_fp8.default(rest[0], rest[5])
    OPS.store_rows.default(pool, [k8, v8], rest[3], tokens_per_page=SHAPE.tokens_per_page)
    attention = {"kv_heads": SHAPE.kv_heads, "v_head_dim": SHAPE.v_head_dim, "softmax_scale": 0.2}
    return OPS.gqa_decode.default(q, pool, *rest[6:], *rest[4:6], **STORED, **attention)[0]


def test_what_must_not_fuse_is_loud(caplog: pytest.LogCaptureFixture) -> None:
    pool, *rest = example()
    rewrites, calls = check(other_positions, lambda: (pool.clone(),), tuple(rest))
    assert "append_gqa" not in calls and {"rope", "rope_quantize", "store_rows"} <= set(calls)
    (miss,) = rewrites.misses
    assert re.fullmatch(r"positions of q and k differ: .*", miss.reason)
    line = other_positions.__code__.co_firstlineno + 3
    assert miss.source is not None and (miss.source.path, miss.source.line) == ("test_inductor.py", line)
    assert miss.reason in caplog.text and miss.reason in str(rewrites)


def reads_old(pool: torch.Tensor, planes: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The pool as it was is needed after the store: an order of plain calls could not say so."""
    before = pool.clone()
    OPS.store_rows.default(pool, [planes, planes], rows, tokens_per_page=SHAPE.tokens_per_page)
    return before, pool.sum(dtype=torch.int32) + before.sum(dtype=torch.int32)


def test_versions_and_back() -> None:
    """Without a rule that fires, what comes out computes what went in."""
    pool, *rest = example()
    k8 = OPS.quantize_fp8.default(rest[1], rest[6])
    rewrites, calls = Rewrites(), []

    def there_and_back(fx: torch.fx.Graph) -> None:
        calls.append([node.name for node in fx.nodes])
        rewrites.rewrite(fx)

    options = {"post_grad_custom_pre_pass": compat.inductor_pass(there_and_back, rules_digest)}
    mine, eager = pool.clone(), pool.clone()
    got = torch.compile(reads_old, fullgraph=True, options=options)(mine, k8, rest[5])
    expected = reads_old(eager, k8, rest[5])
    assert calls and torch.equal(mine, eager)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_a_late_reader_of_an_old_version_keeps_the_call() -> None:
    """Built by hand: inductor's own order of the graph above happens to be that of plain calls."""
    fx = torch.fx.Graph()
    pool, plane, rows = (fx.placeholder(name) for name in ("pool", "plane", "rows"))
    values = torch.empty(8, 2048, dtype=torch.uint8), torch.empty(6, 2, 32, dtype=torch.uint8), torch.empty(6).int()
    for node, value in zip((pool, plane, rows), values, strict=True):
        node.meta["val"] = value
    given = {"planes": [plane, plane], "rows": rows, "tokens_per_page": 16, "_pool_base_index": 0, "_all_bases": [pool]}
    store = fx.call_function(torch.ops.higher_order.auto_functionalized_v2, (OPS.store_rows.default,), given)
    store.meta["val"] = (None, values[0])
    version = fx.call_function(operator.getitem, (store, 1))
    first = fx.call_function(torch.ops.aten.neg.default, (version,))
    late = fx.call_function(torch.ops.aten.neg.default, (pool,))
    for node in (version, first, late):
        node.meta["val"] = values[0]
    fx.output((first, late))
    before = str(fx)
    (why,) = to_in_place(fx)
    assert why.reason == "neg_default_1 reads the pool as it was before this call" and why.node is store
    to_functional(fx)
    assert str(fx) == before


def test_installed_after_another_pass() -> None:
    """Both run, the other first; afterwards inductor's setting is as it was."""
    pool, *rest = example()
    seen: list[bool] = []

    def other(fx: torch.fx.Graph) -> None:
        seen.append(any("append_gqa" in str(node) for node in fx.nodes))

    with config.patch(post_grad_custom_pre_pass=other), Rewrites().installed() as rewrites:
        torch.compile(layer, fullgraph=True)(pool.clone(), *rest)
        assert config.post_grad_custom_pre_pass.uuid() is None  # a plain function has no digest: nothing may be cached
    assert seen == [False] and rewrites.fired["fuse_append"] == 1
    assert config.post_grad_custom_pre_pass is None


def test_digest_is_part_of_inductors_key() -> None:
    made = Rewrites().options()["post_grad_custom_pre_pass"]
    assert made.uuid() == rules_digest() and re.fullmatch(r"kvc [0-9a-f]{64}", rules_digest())


def latent_context(pool: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    """FP8 context attention over latent rows, with K and V expanded and quantized by ops of their own."""
    latent, rope, q_nope, q_rope, w_uk, w_uv, *tables, latent_scale, q_scale, k_scale, v_scale = rest
    k, v = OPS.expand_mla.default(latent, rope, w_uk, w_uv, None, None, None)
    k8, v8 = OPS.quantize_fp8.default(k, k_scale), OPS.quantize_fp8.default(v, v_scale)
    scales = latent_scale, latent_scale, q_scale, k_scale, v_scale
    how = {"chunk_tokens": SHAPE.tokens_per_page, "softmax_scale": 0.2}
    return OPS.mla_context.default(q_nope, q_rope, k8, v8, pool, *tables, w_uk, w_uv, *scales, **STORED, **how)[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_latent_rows_are_expanded_to_codes(dtype: torch.dtype) -> None:
    """With the compiler's own gates: f16 takes the generic path and says so."""
    shape = replace(SHAPE, dtype=dtype)
    rows = mla_inputs.latent(shape), mla_inputs.k_rope(shape)
    queries = mla_inputs.query(shape, "nope"), mla_inputs.query(shape, "rope")
    pool, page_table = mla_inputs.cache(shape)
    steps = page_table, example_inputs.committed(shape), example_inputs.query_starts(shape)
    scales = (mla_inputs.scales(shape)[0], *(example_inputs.scale_for("fp8", name) for name in "qkv"))
    rest = (*rows, *queries, *mla_inputs.weights(shape), *steps, *scales)
    rewrites, calls = check(latent_context, lambda: (pool.clone(),), rest, stores=False)
    if dtype == torch.float16:
        assert calls == ["expand_mla", "quantize_fp8", "quantize_fp8", "mla_context"]
        assert [miss.reason for miss in rewrites.misses] == [
            "gate activation dtype: activations are f16, not bf16 or f32"
        ]
    else:
        assert calls == ["expand_mla", "mla_context"] and not rewrites.misses
