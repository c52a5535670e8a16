"""kvc::append_mla is rope, quantize and store_rows, byte for byte."""

from dataclasses import replace

import pytest
import torch

from kvc.encodings import ENCODINGS
from kvc.ops import OPS
from kvc.ops.codecs import MLA
from kvc.ops.example_inputs import SHAPES, Shape

append = torch.ops.kvc.append_mla.default
ops = torch.ops.kvc
DS_MLA = Shape(latent_dim=512, rope_dim=64, encoding="fp8_ds_mla")


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
