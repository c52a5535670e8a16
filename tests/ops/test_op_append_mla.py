"""kvc::append_mla is rope, quantize and store_rows, byte for byte."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from mixed_calls import LATENT_PAIRS, Mixed, batches, write_rows

from kvc.diagnostics import KvcError
from kvc.encodings import ENCODINGS
from kvc.ops import OPS
from kvc.ops.codecs import MLA
from kvc.ops.example_inputs import SHAPES, Shape

append = torch.ops.kvc.append_mla.default
ops = torch.ops.kvc
VECTORS = json.loads((Path(__file__).parents[1] / "data/codec_vectors.json").read_text())


def unfused(pool, q, latent, k, table, positions, rows, latent_scale, rope_scale, encoding, tokens_per_page, layout):
    """Planes made by the codecs' ops, joined where the encoding keeps whole rows."""
    q, k = (ops.rope.default(x, table, positions, layout=layout) for x in (q, k))
    parts = []
    for field, x, scale in (("latent", latent, latent_scale), ("rope", k, rope_scale)):
        made = OPS[f"quantize_{ENCODINGS[encoding].codec_of(field)}"].overload(x, scale)
        parts.append(made if isinstance(made, tuple) else (made,))
    planes = [torch.cat([parts[i][j] for i, j in plane], -1) for plane in ENCODINGS[encoding].planes_of(MLA)]
    ops.store_rows.default(pool, planes, rows, tokens_per_page=tokens_per_page)
    return q, k


@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8", "fp8_ds_mla"])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_unfused_ops(shape, encoding):
    sizes = {"latent_dim": 512, "rope_dim": 64} if encoding == "fp8_ds_mla" else {}
    (pool, *args), how = OPS["append_mla"].example(replace(SHAPES[shape], encoding=encoding, **sizes))
    q, k = append(fused := pool.clone(), *args, **how)
    keep = how.pop("keep_k")
    q_apart, k_apart = unfused(apart := pool.clone(), *args, **how)
    assert keep and torch.equal(fused, apart) and torch.equal(q, q_apart) and torch.equal(k, k_apart)
    assert not torch.equal(fused, pool)


def test_codes_of_the_latent_are_stored_as_they_are():
    (pool, q, latent, *rest), how = OPS["append_mla"].example(SHAPES["plain"])
    codes = ops.quantize_fp8.default(latent, rest[4])
    append(given := pool.clone(), q, codes, *rest, **how)
    append(made := pool.clone(), q, latent, *rest, **how)
    assert torch.equal(given, made)


@pytest.mark.parametrize(
    ("tokens", "heads"),
    [(1, 128), (31, 96), (1000, 12), (4099, 6), (4099, 1), (31, 1), (1, 1), (1000, 128)],
)
def test_sizes_and_head_counts(tokens, heads):
    sizes = {"latent_dim": 16, "rope_dim": 4, "tokens_per_page": 8}
    shape = replace(SHAPES["plain"], committed=(3,), own=(tokens,), heads=heads, **sizes)
    (pool, *args), how = OPS["append_mla"].example(shape)
    q, k = append(fused := pool.clone(), *args, **how)
    how.pop("keep_k")
    q_apart, k_apart = unfused(apart := pool.clone(), *args, **how)
    assert torch.equal(fused, apart) and torch.equal(q, q_apart) and torch.equal(k, k_apart)


@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8_ds_mla"])
def test_codes_are_refused_where_the_codec_is_another(encoding):
    """Codes under a scale of the layer are no codes of a block; nothing is written."""
    shape = replace(SHAPES["plain"], encoding=encoding, latent_dim=512, rope_dim=64)
    (pool, q, latent, *rest), how = OPS["append_mla"].example(shape)
    before = pool.clone()
    with pytest.raises(KvcError, match=f"latent: holds codes: encoding {encoding} takes latent in an activation dtype"):
        append(pool, q, latent.to(torch.uint8), *rest, **how)
    assert torch.equal(pool, before)


@pytest.mark.parametrize("vector", VECTORS["ds_mla"], ids=["bf16", "f32"])
def test_rows_of_656_bytes(vector):
    """Codes, block scales and bf16 rope side by side, and back; FlashMLA reads these rows."""
    dtype = torch.float32 if "x_f32" in vector else torch.bfloat16
    x, codes, scales, value = (
        torch.stack([torch.frombuffer(bytearray.fromhex(row), dtype=of) for row in vector[name]])
        for name, of in (
            ("x_f32" if dtype == torch.float32 else "x_bf16", dtype),
            ("codes", torch.uint8),
            ("scales", torch.uint8),
            ("value", torch.float32),
        )
    )
    tokens = len(x)
    k_rope = torch.randn(tokens, 1, 64).to(dtype)
    pool = torch.full((2, 32 * 656), 0xFF, dtype=torch.uint8)
    rows = torch.arange(tokens, dtype=torch.int32) + 32
    how = {"encoding": "fp8_ds_mla", "tokens_per_page": 32}
    append(pool, None, x[:, None], k_rope, None, None, rows, None, None, **how, keep_k=False)
    stored = pool[1].view(32, 656)[:tokens]
    rope = k_rope[:, 0].bfloat16()
    assert torch.equal(stored, torch.cat([codes, scales, rope.view(torch.uint8)], -1))
    assert (pool[0] == 0xFF).all() and (pool[1].view(32, 656)[tokens:] == 0xFF).all()
    table, length = torch.tensor([[1]]).int(), torch.tensor([tokens]).int()
    sizes = {"fields": ["latent", "rope"], "heads": [1, 1], "dims": [512, 64]}
    latent, back = ops.gather_rows.default(pool, table, length, [None, None], **sizes, **how, dtype=torch.float32)
    assert torch.equal(latent[0, :tokens, 0], value) and torch.equal(back[0, :tokens, 0], rope.float())


@pytest.mark.parametrize("broken", ["shape", "rows", "positions", "scale"])
def test_nothing_is_written_by_a_refused_call(broken):
    (pool, *args), how = OPS["append_mla"].example(SHAPES["plain"])
    change = {
        "shape": (2, lambda t: t[:, :, :31]),
        "rows": (5, lambda t: t + 10_000),
        "positions": (4, lambda t: t - 99),
        "scale": (6, lambda _: None),
    }
    index, make = change[broken]
    args[index] = make(args[index])
    before = pool.clone()
    with pytest.raises(KvcError):
        append(pool, *args, **how)
    assert torch.equal(pool, before)


@settings(max_examples=40, deadline=None)
@given(batches("mla", LATENT_PAIRS, uniform=False))
def test_the_twin_gets_the_rows_of_store_retained_rows(case):
    args, how = OPS["append_mla"].example(case.shape)
    plain, _ = OPS["append_mla"].example(case.shape)
    twin, alone = (torch.full_like(case.pool(case.twin), 0xFF) for _ in range(2))
    rows, scales = write_rows(case.shape, case.twin_table), case.scales(case.twin)
    q, k = ops.append_mla.default(*args, twin, rows, *scales, **how, twin_encoding=case.twin)
    expected = ops.append_mla.default(*plain, **how)
    assert torch.equal(q, expected[0]) and torch.equal(k, expected[1]) and torch.equal(args[0], plain[0])
    stored = {"encoding": case.twin, "fields": list(case.fields), "tokens_per_page": case.shape.tokens_per_page}
    rotation = {"rotated": "rope", "layout": how["layout"]}
    ops.store_retained_rows.default(alone, list(args[2:4]), rows, *args[4:6], scales, **stored, **rotation)
    assert torch.equal(twin, alone)


def test_a_bad_row_of_the_twin_leaves_both_pools_alone():
    case = Mixed(Shape(), "bf16", 3, 6, "token", kind="mla")
    args, how = OPS["append_mla"].example(case.shape)
    twin, before = case.pool("bf16"), args[0].clone()
    untouched = twin.clone()
    for rows, code in ((torch.full_like(args[6], 3), "KVC553"), (args[6] + 10**6, "KVC552")):
        with pytest.raises(KvcError, match=f"{code} kvc::append_mla: twin_rows"):
            ops.append_mla.default(*args, twin, rows, None, None, **how, twin_encoding="bf16")
    assert torch.equal(args[0], before) and torch.equal(twin, untouched)


def test_codes_of_the_history_are_no_values_for_a_twin():
    case = Mixed(Shape(), "bf16", 3, 6, "token", kind="mla")
    args, how = OPS["append_mla"].example(case.shape)
    args = list(args)
    args[2] = ops.quantize_fp8.default(args[2], args[7])
    with pytest.raises(KvcError, match="holds codes of the history"):
        ops.append_mla.default(*args, case.pool("bf16"), args[6], None, None, **how, twin_encoding="bf16")
