"""Bytes of a row in every encoding, against numbers that are known from elsewhere."""

import pytest

from kvc.encodings import ENCODINGS, Field, StateTensor, page_layout, state_layout

MLA = (Field("latent", 1, 512), Field("rope", 1, 64))
V4 = (Field("latent", 1, 448), Field("rope", 1, 64))
GQA = (Field("k", 1, 128), Field("v", 1, 128))
KEY = (Field("key", 1, 128),)

ROWS = [
    *((MLA, name, size) for name, size in (("fp32", 2304), ("bf16", 1152), ("fp8", 576), ("nvfp4", 324))),
    *((MLA, name, size) for name, size in (("nvfp4_rope_fp8", 352), ("nvfp4_residual", 360), ("fp8_ds_mla", 656))),
    (V4, "fp8_ds_mla_v4", 584),
    *((KEY, name, size) for name, size in (("index_key", 132), ("bf16", 256), ("fp32", 512))),
    *((GQA, name, size) for name, size in (("fp32", 1024), ("bf16", 512), ("fp8", 256), ("nvfp4", 144))),
]


@pytest.mark.parametrize(("fields", "name", "size"), ROWS)
def test_bytes_of_a_row(fields, name, size):
    assert page_layout(ENCODINGS[name], fields, 64).row_bytes == size


def places(name, fields, tokens):
    layout = page_layout(ENCODINGS[name], fields, tokens)
    return [(plane.field, plane.part, plane.offset, plane.heads, plane.row_bytes) for plane in layout.planes]


def test_planes_are_data_then_scales_and_aligned():
    assert places("nvfp4", GQA, 3) == [
        ("k", "data", 0, 1, 64),
        ("v", "data", 192, 1, 64),
        ("k", "scales", 384, 1, 8),
        ("v", "scales", 416, 1, 8),
    ]
    assert page_layout(ENCODINGS["nvfp4"], GQA, 3).page_bytes == 448
    assert [row[:2] for row in places("nvfp4_residual", MLA, 64)] == [
        ("latent", "data"),
        ("rope", "data"),
        ("latent", "scales"),
        ("rope", "scales"),
    ]
    assert [row[4] for row in places("nvfp4_residual", MLA, 64)] == [256, 64, 32, 8]
    assert places("index_key", KEY, 64) == [("key", "data", 0, 1, 128), ("key", "scales", 8192, 1, 4)]


def test_deepseek_rows_stay_whole():
    assert places("fp8_ds_mla", MLA, 64) == [("latent+rope", "data+scales", 0, 1, 656)]
    assert places("fp8_ds_mla_v4", V4, 64) == [("latent+rope", "data", 0, 1, 576), ("latent", "scales", 36_864, 1, 8)]


@pytest.mark.parametrize(("rows", "page"), [(1, 1152), (2, 1728), (64, 37_440), (256, 149_760)])
def test_v4_pages_are_multiples_of_576(rows, page):
    """584 a row, rounded up to the next multiple of 576."""
    layout = page_layout(ENCODINGS["fp8_ds_mla_v4"], V4, rows)
    assert layout.page_bytes == page == -(-584 * rows // 576) * 576


def test_a_state_is_its_tensors_side_by_side():
    layout = state_layout((StateTensor("conv", (5, 3), "bf16"), StateTensor("ssm", (2, 4), "fp32")))
    assert [(plane.field, plane.offset, plane.row_bytes) for plane in layout.planes] == [
        ("conv", 0, 30),
        ("ssm", 32, 32),
    ]
    assert (layout.row_bytes, layout.page_bytes) == (62, 64)


@pytest.mark.parametrize(
    ("fields", "name", "problem"),
    [
        (V4, "fp8_ds_mla", "512 latent"),
        (MLA, "fp8_ds_mla_v4", "448 latent"),
        ((Field("k", 1, 40), Field("v", 1, 40)), "nvfp4", "groups of 16"),
        (GQA, "nvfp4_rope_fp8", "no field `k`"),
        ((Field("key", 1, 96),), "index_key", "groups of 128"),
    ],
)
def test_rows_without_a_layout(fields, name, problem):
    with pytest.raises(ValueError, match=problem):
        page_layout(ENCODINGS[name], fields, 64)


def test_fields_with_a_scale_of_their_own():
    latent = ("latent", "rope")
    assert ENCODINGS["fp8"].scale_fields(("k", "v")) == ("k", "v")
    assert ENCODINGS["fp8"].scale_fields(latent) == ENCODINGS["nvfp4_residual"].scale_fields(latent) == ("latent",)
    assert ENCODINGS["nvfp4_rope_fp8"].scale_fields(latent) == latent
    assert ENCODINGS["fp8_ds_mla"].scale_fields(latent) == ENCODINGS["bf16"].scale_fields(("k",)) == ()
