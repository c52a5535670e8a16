"""Slow, independent oracles: numpy scalars and loops, fp64 attention. They share no code with the ops."""

import math

import numpy as np
import torch

from kvc.capabilities import LAYER_CAPABILITIES
from kvc.ops import OPS

GQA_ENCODINGS = [row.encoding for row in LAYER_CAPABILITIES if row.kind == "gqa"]
KEEPS_NAN = [name for name in GQA_ENCODINGS if name != "nvfp4"]  # there NaN is code 0


def quantized(encoding, x, scale):
    """The planes of one field, by the encoding's own op."""
    made = OPS[f"quantize_{encoding}"].overload(x, scale)
    return [made] if isinstance(made, torch.Tensor) else list(made)


def row_planes(encoding, values, scales):
    """Planes of K and V in page order: data of both, then their block scales."""
    fields = [quantized(encoding, x, scale) for x, scale in zip(values, scales, strict=True)]
    return [plane for part in zip(*fields, strict=True) for plane in part]


def naive_attention(q, k, v, visible, scale):
    """One sequence in fp64, token by token and head by head: q [n, H, D], k [L, Hk, D], v [L, Hk, V]."""
    out = torch.zeros(*q.shape[:2], v.shape[2], dtype=torch.float64)
    lse = torch.full(q.shape[:2], -math.inf, dtype=torch.float64)
    group = q.shape[1] // k.shape[1]
    for i, seen in enumerate(visible):
        for head in range(q.shape[1]):
            if seen > 0:
                keys, values = k[:seen, head // group].double(), v[:seen, head // group].double()
                scores = keys @ q[i, head].double() * scale
                lse[i, head] = scores.logsumexp(0)
                out[i, head] = (scores - lse[i, head]).exp() @ values
    return out, lse


def naive_rope(x, table, positions, layout):
    """Scalar fp32 arithmetic, every operation rounded by numpy; result in fp32 before the last rounding."""
    values, rows = x.float().numpy(), table.numpy()
    out = values.copy()
    half = table.shape[1] // 2
    for t, position in enumerate(positions.tolist()):
        for i in range(half):
            a, b = (i, i + half) if layout == "half" else (2 * i, 2 * i + 1)
            cos, sin = np.float32(rows[position, i]), np.float32(rows[position, half + i])
            first, second = values[t, :, a], values[t, :, b]
            out[t, :, a] = np.float32(first * cos) - np.float32(second * sin)
            out[t, :, b] = np.float32(second * cos) + np.float32(first * sin)
    return torch.from_numpy(out)


def naive_store(pool, planes, rows, tokens_per_page):
    """Byte by byte into a copy of the pool, offsets counted here."""
    stored = pool.clone().numpy()
    for t, row in enumerate(rows.tolist()):
        page, token, offset = row // tokens_per_page, row % tokens_per_page, 0
        for plane in planes:
            heads, size = plane.shape[1:]
            for head in range(heads if row >= 0 else 0):
                start = offset + (head * tokens_per_page + token) * size
                stored[page, start : start + size] = plane[t, head].numpy()
            offset = (offset + heads * tokens_per_page * size + 15) // 16 * 16
    return torch.from_numpy(stored)


def naive_e4m3(code):
    """The value of one e4m3 code, from its definition."""
    sign, exponent, mantissa = -1.0 if code & 0x80 else 1.0, code >> 3 & 15, code & 7
    if code & 0x7F == 0x7F:
        return math.nan
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))
