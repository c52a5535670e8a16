"""kvc::mla_decode: absorbed attention over latent rows."""

from dataclasses import replace

import pytest
import torch
from op_oracles import naive_attention

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES

decode = torch.ops.kvc.mla_decode.default
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}


def check(args, kwargs):
    """Compare with every sequence in fp64 on the rows that gather_rows reads."""
    q_latent, q_rope, pool, table, lengths, *scales = args
    sizes = {"fields": ["latent", "rope"], "heads": [1, 1], "dims": [q_latent.shape[2], q_rope.shape[2]]}
    how = {name: kwargs[name] for name in ("encoding", "tokens_per_page")}
    latent, rope = torch.ops.kvc.gather_rows.default(pool, table, lengths, scales, **sizes, **how, dtype=torch.float32)
    out, lse = decode(*args, **kwargs)
    q, count = torch.cat((q_latent, q_rope), -1), q_latent.shape[0] // len(lengths)
    for b, length in enumerate(lengths.tolist()):
        held = (table[b] >= 0).repeat_interleave(kwargs["tokens_per_page"])
        own = slice(b * count, (b + 1) * count)
        visible = [int(held[: max(0, length - count + i + 1)].sum()) for i in range(count)]
        values, ropes = (x[b, :length][held[:length]] for x in (latent, rope))
        expected = naive_attention(q[own], torch.cat((values, ropes), -1), values, visible, kwargs["softmax_scale"])
        tolerance = TOLERANCE[q.dtype]
        torch.testing.assert_close(out[own].double(), expected[0], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(lse[own].double(), expected[1], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8", "fp8_ds_mla"])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_fp64(shape, encoding):
    sizes = {"latent_dim": 512, "rope_dim": 64} if encoding == "fp8_ds_mla" else {}
    check(*OPS["mla_decode"].example(replace(SHAPES[shape], encoding=encoding, **sizes)))
