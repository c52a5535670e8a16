"""Bad calls of the ops of latent attention, in the form of `test_op_errors.CASES`."""

import torch


def strided(t):
    """The same values, every second element of a row."""
    return t.repeat_interleave(2, -1)[..., ::2]


def activations(t):
    return t.to(torch.bfloat16)


CASES = [
    ("quantize_nvfp4", 0, lambda t: t[..., :24], "KVC551", "x: axis X: 24 values do not divide into groups of 16"),
    ("dequantize_nvfp4", 1, lambda t: t[..., :1], "KVC551", "scales: axis X is 1, expected 2 for 32 values"),
    ("quantize_nvfp4_residual", 1, lambda _: None, "KVC551", "scale: is missing: nvfp4_residual needs a scale"),
    ("dequantize_nvfp4_residual", 0, lambda t: t[..., :8], "KVC551", "8 values do not divide into groups of 16"),
    ("quantize_fp8_block", 0, lambda t: t[..., :64], "KVC551", "x: axis X: 64 values do not divide into groups of 128"),
    ("dequantize_fp8_block", 1, lambda t: t[..., :2], "KVC551", "scales: axis X is 2, expected 4 for 128 values"),
    ("project_heads", 1, lambda t: t[:, :8], "KVC551", "kvc::project_heads: w: axis I is 8, expected 16"),
    ("project_heads", 1, lambda t: t.float(), "KVC551", "w: dtype is float32, that of x is bfloat16"),
    ("expand_mla", 0, lambda t: t[:, 0], "KVC551", "kvc::expand_mla: latent: has 2 axes, expected [T 1 C]"),
    ("expand_mla", 2, lambda t: t[..., :8], "KVC551", "w_uk: axis C is 8, expected 48"),
    ("expand_mla", 3, lambda t: t[:1], "KVC551", "w_uv: axis H is 1, expected 4"),
    ("expand_mla", 1, lambda t: t.float(), "KVC551", "rope: dtype is float32, that of latent is bfloat16"),
    ("expand_mla", 5, lambda _: None, "KVC551", "v_scale: goes with k_scale: give both or neither"),
    ("expand_mla", 4, lambda _: None, "KVC551", "query_starts: go with v_layout=transposed"),
    ("expand_mla", "v_layout", lambda _: "columns", "KVC554", "v_layout 'columns' is not known"),
    ("expand_mla", 4, lambda t: t + 1, "KVC552", "query_starts is [1, 3, 5, 7], expected 0 <= ... <= 6"),
    ("append_mla", 2, lambda t: t[..., :16], "KVC551", "pool: axis page_bytes is 1280, expected 768"),
    ("append_mla", 3, lambda t: t[..., :16], "KVC551", "kvc::append_mla: k_rope: axis R is 16, expected 32"),
    ("append_mla", 1, lambda t: t[:-1], "KVC551", "latent: axis T is 6, expected 5"),
    ("append_mla", 5, lambda t: t + 99, "KVC552", "kvc::append_mla: positions[0] is"),
    ("append_mla", 6, lambda t: t * 0, "KVC553", "kvc::append_mla: rows: write row 0 is given 6 times"),
    ("append_mla", 5, lambda _: None, "KVC551", "kvc::append_mla: positions: go with table: give both or neither"),
    ("append_mla", "layout", lambda _: None, "KVC551", "kvc::append_mla: layout: goes with table"),
    ("append_mla", 7, lambda _: None, "KVC551", "kvc::append_mla: latent_scale: is missing"),
    ("append_mla", 3, lambda t: t.to(torch.uint8), "KVC551", "k_rope: dtype is uint8"),
    ("append_mla", 0, lambda t: t[:1].expand(t.shape), "KVC551", "axis P has stride 0: pages of 1280 bytes overlap"),
    ("mla_decode", 0, lambda t: t[:-1], "KVC551", "q_rope: axis T is 6, expected 5"),
    ("mla_decode", 1, lambda t: t.float(), "KVC551", "q_rope: dtype is float32, that of q_latent is bfloat16"),
    ("mla_decode", 4, lambda t: t + 60, "KVC552", "kvc::mla_decode: lengths[0] is 67"),
    ("mla_decode", 4, lambda t: t[:2].repeat(2), "KVC551", "lengths: axis B is 4, expected 3"),
    ("mla_decode", "encoding", lambda _: "fp8_ds_mla", "KVC551", "latent_scale: is given: fp8_block takes no scale"),
    ("mla_decode", "encoding", lambda _: "fp8_ds_mla_v4", "KVC554", "encoding 'fp8_ds_mla_v4' has no codec yet"),
    ("mla_context", 0, lambda t: t[..., :8], "KVC551", "w_uk: axis N is 16, expected 8"),
    ("mla_context", 2, lambda t: t[..., :40], "KVC551", "k: axis K is 40, expected N + R = 48"),
    ("mla_context", 3, lambda t: t[..., :40], "KVC551", "v: axis columns is 40, expected T + 16 B = 54"),
    ("mla_context", "v_layout", lambda _: "rows", "KVC551", "kvc::mla_context: v: axis T is 4, expected 6"),
    ("mla_context", 2, activations, "KVC551", "v: dtype is uint8, that of k is bfloat16"),
    ("mla_context", 3, activations, "KVC551", "v: dtype is bfloat16, that of k is uint8"),
    ("mla_context", 13, lambda _: None, "KVC551", "v_scale: goes with k_scale: give both or neither"),
    ("mla_context", 0, strided, "KVC551", "kvc::mla_context: q_nope: axis N has stride 2, expected 1"),
    ("mla_context", 1, strided, "KVC551", "kvc::mla_context: q_rope: axis R has stride 2, expected 1"),
    ("mla_context", 2, strided, "KVC551", "kvc::mla_context: k: axis K has stride 2, expected 1"),
    ("mla_context", 3, strided, "KVC551", "kvc::mla_context: v: axis columns has stride 2, expected 1"),
    (
        "mla_context",
        "chunk_tokens",
        lambda _: 24,
        "KVC551",
        "chunk_tokens: is 24, expected a multiple of the 16 tokens",
    ),
    ("mla_context", 9, lambda t: t.float(), "KVC551", "w_uv: dtype is float32, that of w_uk is bfloat16"),
    ("mla_context", 0, lambda t: t.float(), "KVC551", "q_nope: dtype is float32, that of w_uk is bfloat16"),
    ("mla_context", 7, lambda t: t + 1, "KVC552", "query_starts is [1, 3, 5, 7], expected 0 <= ... <= 6"),
    ("mla_context", 6, lambda t: t - 1, "KVC552", "kvc::mla_context: committed[1] is -1"),
]
