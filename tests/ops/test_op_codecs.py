"""Codecs: vectors of an independent implementation, every code, and the rounding rules."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_oracles import naive_e4m3

from kvc.diagnostics import KvcError
from kvc.encodings import ENCODINGS
from kvc.ops import OPS
from kvc.ops.codecs import CODECS, KV, MLA, row_fields, row_format, scale_operand

VECTORS = json.loads((Path(__file__).parents[1] / "data/codec_vectors.json").read_text())
ops = torch.ops.kvc
floats = st.lists(st.floats(width=32), min_size=1, max_size=64)
scales = st.floats(min_value=2.0**-20, max_value=2.0**20, width=32)


def read(rows, dtype):
    return torch.stack([torch.frombuffer(bytearray.fromhex(row), dtype=dtype) for row in rows])


@pytest.mark.parametrize(
    "vector", VECTORS["fp8"], ids=lambda v: f"{'f32' if 'x_f32' in v else 'bf16'}-{v['inv_scale']}"
)
def test_fp8_vectors(vector):
    x = read(vector["x_f32"], torch.float32) if "x_f32" in vector else read(vector["x_bf16"], torch.bfloat16)
    scale = torch.tensor([math.nan, float.fromhex(vector["inv_scale"])])
    assert torch.equal(ops.quantize_fp8.default(x, scale), read(vector["codes"], torch.uint8))


def test_every_e4m3_code_decodes_to_its_definition_and_encodes_back():
    codes = torch.arange(256, dtype=torch.uint8)
    scale = scale_operand("fp8", 1.0)
    values = ops.dequantize_fp8.default(codes, scale, dtype=torch.float32)
    expected = torch.tensor([naive_e4m3(code) for code in range(256)])
    assert torch.equal(values.view(torch.int32)[~expected.isnan()], expected.view(torch.int32)[~expected.isnan()])
    assert torch.equal(values.isnan(), expected.isnan())
    assert torch.equal(values.nan_to_num(1.0), codes.view(torch.float8_e4m3fn).float().nan_to_num(1.0))
    again = ops.quantize_fp8.default(values, scale)
    assert torch.equal(again[~values.isnan()], codes[~values.isnan()])
    assert ((again[values.isnan()] & 0x7F) == 0x7F).all()


@given(floats, scales)
@settings(deadline=None, max_examples=60)
def test_fp8_code_is_the_nearest(values, scale):
    """Against a search over all codes in fp64: nearest to the clamped fp32 product, ties to the even code."""
    operand = scale_operand("fp8", scale)
    codes = ops.quantize_fp8.default(torch.tensor(values), operand)
    finite = [naive_e4m3(code) for code in range(0x7F)]
    with np.errstate(over="ignore", invalid="ignore"):
        products = np.array(values, np.float32) * operand[1].numpy()
    for product, code in zip(products, codes.tolist(), strict=True):
        if math.isnan(product):
            assert code & 0x7F == 0x7F
            continue
        size = min(abs(float(product)), 448.0)
        nearest = min(range(0x7F), key=lambda c: (abs(finite[c] - size), c & 1))
        assert code == nearest | (0x80 if math.copysign(1, product) < 0 else 0)


@pytest.mark.parametrize("scale", [2.0**-126, 2.0**119])
def test_every_code_has_a_finite_value_under_the_extreme_scales(scale):
    codes = torch.tensor([code for code in range(256) if code & 0x7F != 0x7F], dtype=torch.uint8)
    values = ops.dequantize_fp8.default(codes, scale_operand("fp8", scale), dtype=torch.float32)
    assert values.double().tolist() == [naive_e4m3(code) * scale for code in codes.tolist()]


@given(st.lists(st.integers(0, 255), min_size=1, max_size=64), scales, st.sampled_from([torch.float32, torch.bfloat16]))
@settings(deadline=None, max_examples=60)
def test_fp8_value_is_one_rounded_product(codes, scale, dtype):
    operand = scale_operand("fp8", scale)
    plane = torch.tensor(codes, dtype=torch.uint8)
    values = ops.dequantize_fp8.default(plane, operand, dtype=dtype)
    expected = (plane.view(torch.float8_e4m3fn).float() * operand[0]).to(dtype)
    assert torch.equal(values.nan_to_num(7.0), expected.nan_to_num(7.0)) and torch.equal(
        values.isnan(), expected.isnan()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CODECS)
def test_non_contiguous_and_empty_inputs(name, dtype):
    scale = scale_operand(name, 0.3) if CODECS[name].factor else None
    group = max(part.group for part in CODECS[name].parts)
    wide = torch.randn(6, 4, max(32, 4 * group), generator=torch.Generator().manual_seed(0)).to(dtype)
    quantize, dequantize = OPS[f"quantize_{name}"].overload, OPS[f"dequantize_{name}"].overload
    for x in (wide.transpose(0, 1), wide[1::2, ::3], wide[..., ::2], wide[..., group : 2 * group], wide[:0]):
        planes = as_planes(quantize(x, scale))
        contiguous = as_planes(quantize(x.clone(memory_format=torch.contiguous_format), scale))
        assert all(torch.equal(a, b) for a, b in zip(planes, contiguous, strict=True))
        expected = dequantize(*planes, scale, dtype=dtype)
        for change in (odd_address, strided, lambda p: p.transpose(0, 1).contiguous().transpose(0, 1)):
            values = dequantize(*map(change, planes), scale, dtype=dtype)
            assert torch.equal(values, expected) and values.shape == x.shape


def as_planes(made):
    return [made] if isinstance(made, torch.Tensor) else list(made)


def odd_address(plane):
    return torch.empty(plane.numel() + 1, dtype=torch.uint8)[1:].view(plane.shape).copy_(plane)


def strided(plane):
    return plane.repeat_interleave(2, -1)[..., ::2]


@pytest.mark.parametrize(("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_plain_codecs_keep_the_bits(name, dtype):
    bits = torch.arange(0, 2**16, dtype=torch.int32).to(torch.uint16)
    values = bits.view(torch.bfloat16).to(dtype)
    plane = OPS[f"quantize_{name}"].overload(values, None)
    assert torch.equal(plane, values.view(torch.uint8))
    back = OPS[f"dequantize_{name}"].overload(plane, None, dtype=dtype)
    number = ~values.isnan()
    assert torch.equal(back[number].view(torch.uint8), values[number].view(torch.uint8))
    assert torch.equal(back.isnan(), values.isnan())
    assert plane.data_ptr() != values.data_ptr() and back.data_ptr() != plane.data_ptr()


def test_bf16_rounds_to_nearest_even():
    x = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8], dtype=torch.float32)
    expected = torch.tensor([1.0, 1 + 2**-6, 1 + 2**-7, -1.0], dtype=torch.bfloat16)
    assert torch.equal(ops.quantize_bf16.default(x, None), expected.view(torch.uint8))


def test_scale_operand_is_the_scale_and_its_fp32_reciprocal():
    scale, factor = scale_operand("fp8", 0.1).numpy()
    assert scale == np.float32(0.1) and factor == np.float32(1) / np.float32(0.1)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan, 1e39, 1e-39, 2.0**120, 2.0**128])
def test_scale_that_cannot_be_used(value):
    with pytest.raises(KvcError, match="KVC555"):
        scale_operand("fp8", value)


def test_scale_of_a_codec_without():
    with pytest.raises(KvcError, match="codec bf16 takes no scale"):
        scale_operand("bf16", 1.0)


@pytest.mark.parametrize("fields", [KV, MLA])
@pytest.mark.parametrize("name", [name for name, e in ENCODINGS.items() if e.codec in CODECS])
def test_codecs_store_the_parts_of_the_encodings(name, fields):
    encoding = ENCODINGS[name]
    for field in fields:
        if parts := encoding.parts_of(field):
            codec = CODECS[encoding.codec_of(field)]
            assert [(p.name, p.bits, p.group) for p in codec.parts] == [(p.name, p.bits, p.group) for p in parts]
            assert codec.factor is None or encoding.scale == "field"


def test_planes_of_a_row_are_in_page_order():
    k, v = torch.zeros(1, 1, 8), torch.ones(1, 2, 4)
    row = row_format("test", "bf16", row_fields(KV, (1, 2), (8, 4)))
    assert [plane.shape for plane in row.encode((k, v), (None, None))] == [(1, 1, 16), (1, 2, 8)]


@pytest.mark.parametrize("vector", [*VECTORS["index_key"], *VECTORS["ds_mla"]], ids=lambda v: "-".join(v)[:5])
def test_fp8_block_vectors(vector):
    """One rule for the latent of DeepSeek's rows and for the keys of an indexer."""
    x = read(vector["x_f32"], torch.float32) if "x_f32" in vector else read(vector["x_bf16"], torch.bfloat16)
    codes, block_scales = ops.quantize_fp8_block.default(x, None)
    assert torch.equal(codes, read(vector["codes"], torch.uint8))
    assert torch.equal(block_scales, read(vector["scales"], torch.uint8))
    values = ops.dequantize_fp8_block.default(codes, block_scales, None, dtype=torch.float32)
    assert torch.equal(values, read(vector["value"], torch.float32))


def test_fp8_block_keeps_nan_to_itself():
    x = torch.ones(1, 256)
    x[0, 3] = torch.nan
    values = ops.dequantize_fp8_block.default(*ops.quantize_fp8_block.default(x, None), None, dtype=torch.float32)
    assert values[0].isnan().nonzero().flatten().tolist() == [3] and (values.nan_to_num(1.0) == 1).all()


NVFP4 = [(name, index) for name in ("nvfp4", "nvfp4_residual") for index in range(len(VECTORS[name]))]


@pytest.mark.parametrize(("name", "index"), NVFP4)
def test_nvfp4_vectors(name, index):
    vector = VECTORS[name][index]
    x = read(vector["x_f32"], torch.float32) if "x_f32" in vector else read(vector["x_bf16"], torch.bfloat16)
    scale = scale_operand(name, float.fromhex(vector["global_scale"]))
    packed, block_scales = OPS[f"quantize_{name}"].overload(x, scale)
    assert torch.equal(packed, read(vector["packed"], torch.uint8))
    assert torch.equal(block_scales, read(vector["scales"], torch.uint8))
    values = OPS[f"dequantize_{name}"].overload(packed, block_scales, scale, dtype=torch.float32)
    assert torch.equal(values.view(torch.int32), read(vector["value"], torch.float32).view(torch.int32))


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


@given(st.lists(st.floats(width=32), min_size=16, max_size=16), scales)
@settings(deadline=None, max_examples=80)
def test_nvfp4_code_is_the_nearest(values, scale):
    """Against a search over all codes; the block's scale is fp8's rule applied to amax, products rounded in fp32."""
    operand = scale_operand("nvfp4", scale)
    packed, block = ops.quantize_nvfp4.default(torch.tensor(values), operand)
    x = np.array(values, np.float32)
    with np.errstate(all="ignore"):
        amax = max((abs(v) for v in x if not math.isnan(v)), default=np.float32(0))
        wanted = torch.tensor(min(float(np.float32(amax) * operand[1].numpy()), 448.0)).to(torch.float8_e4m3fn)
        assert block.view(torch.float8_e4m3fn).float() == wanted.float()
        step = np.float32(naive_e4m3(int(block[0]))) * operand[0].numpy()
        inverse = np.float32(0) if step == 0 else np.float32(1) / step
        scaled = x * inverse
    for index, (value, product) in enumerate(zip(x, scaled, strict=True)):
        code = int(packed[index // 2]) >> 4 * (index % 2) & 15
        if math.isnan(product):
            assert code & 7 == 0
            continue
        size = min(abs(float(product)), 6.0)
        nearest = min(range(8), key=lambda c: (abs(E2M1[c] - size), c & 1))
        assert code == nearest | (8 if math.copysign(1, value) < 0 else 0)


def test_nvfp4_zeros_and_nan():
    x = torch.tensor([[0.0, -0.0, torch.nan, -torch.nan] * 4])
    packed, block = ops.quantize_nvfp4.default(x, scale_operand("nvfp4", 0.3))
    assert packed.tolist() == [[0x80, 0x00] * 4] and block.tolist() == [[0]]
    assert ops.dequantize_nvfp4.default(packed, block, scale_operand("nvfp4", 0.3), dtype=torch.float32).eq(0).all()


def test_rows_of_an_indexer():
    """Codes and block scales are planes of their own, by the rule of fp8_block."""
    vector = VECTORS["index_key"][0]
    x = read(vector["x_bf16"], torch.bfloat16)[:, None]
    row = row_format("test", "index_key", row_fields(("key",), (1,), (128,)))
    planes = row.encode((x,), (None,))
    assert [plane[:, 0].tolist() for plane in planes] == [
        read(vector[part], torch.uint8).tolist() for part in ("codes", "scales")
    ]
    assert torch.equal(row.decode(planes, (None,))[0][:, 0], read(vector["value"], torch.float32))


def test_rows_with_nvfp4_latent_and_fp8_rope():
    """Each field by its own codec under its own scale; planes in page order: data, data, scales."""
    made = torch.Generator().manual_seed(2)
    latent, rope = torch.randn(5, 1, 64, generator=made), torch.randn(5, 1, 32, generator=made)
    operands = scale_operand("nvfp4", 0.02), scale_operand("fp8", 0.03)
    row = row_format("test", "nvfp4_rope_fp8", row_fields(MLA, (1, 1), (64, 32)))
    planes = row.encode((latent, rope), operands)
    packed, block = ops.quantize_nvfp4.default(latent, operands[0])
    for plane, expected in zip(planes, (packed, ops.quantize_fp8.default(rope, operands[1]), block), strict=True):
        assert torch.equal(plane, expected)
    assert [plane.heads * plane.row_bytes for plane in row.layout(16).planes] == [32, 32, 4]
    values = row.decode(planes, operands)
    assert torch.equal(values[0], ops.dequantize_nvfp4.default(packed, block, operands[0], dtype=torch.float32))
    assert torch.equal(values[1], ops.dequantize_fp8.default(planes[1], operands[1], dtype=torch.float32))
