"""kvc::mla_decode: absorbed attention over latent rows."""

from dataclasses import replace

import pytest
import torch
from mla_exact import decode_keys, exact
from mla_pools import FILLS, with_other_bytes

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES, Shape

decode = torch.ops.kvc.mla_decode.default
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}
WIDTHS = {"fp8_ds_mla": {"latent_dim": 512, "rope_dim": 64}}


@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8", "fp8_ds_mla"])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_fp64(shape, encoding):
    args, how = OPS["mla_decode"].example(replace(SHAPES[shape], encoding=encoding, **WIDTHS.get(encoding, {})))
    (out, lse), (want, states) = decode(*args, **how), exact(decode_keys, args, how)
    tolerance = TOLERANCE[args[0].dtype]
    torch.testing.assert_close(out.double(), want, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.double(), states, rtol=2e-6, atol=2e-6)


DRAFTS = Shape(committed=(45, 0, 16, 29), own=(3, 3, 3, 3), dtype=torch.float32)


@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8", "fp8_ds_mla"])
@pytest.mark.parametrize("fill", FILLS)
def test_other_bytes_change_nothing(fill, encoding):
    """Rows at or past the length, pages that nobody holds, and lengths of 0 in a padded batch."""
    shape = replace(DRAFTS, encoding=encoding, **WIDTHS.get(encoding, {}))
    (*queries, pool, table, lengths, latent_scale, rope_scale), how = OPS["mla_decode"].example(shape)
    lengths[1] = 0
    rest = table, lengths, latent_scale, rope_scale
    other = with_other_bytes(shape, pool, lengths.tolist(), FILLS[fill])
    changed, plain = (decode(*queries, p, *rest, **how) for p in (other, pool))
    assert all(torch.equal(a, b) for a, b in zip(changed, plain, strict=True))
    assert not plain[0][3:6].any() and plain[1][3:6].eq(-torch.inf).all() and plain[1][6:].isfinite().all()


def test_queries_before_the_first_row_see_nothing():
    """A length below the number of query tokens: the first of them have no key."""
    args, how = OPS["mla_decode"].example(DRAFTS)
    args[4][:] = torch.tensor([2, 1, 3, 0])
    (out, lse), (want, states) = decode(*args, **how), exact(decode_keys, args, how)
    blind = torch.tensor([True, False, False, True, True, False, False, False, False, True, True, True])
    assert lse.eq(-torch.inf).all(1).equal(blind) and not out[blind].any()
    torch.testing.assert_close(out.double(), want, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(lse.double(), states, rtol=2e-6, atol=2e-6)


def test_pages_not_held_take_no_part():
    args, how = OPS["mla_decode"].example(DRAFTS)
    whole, table = decode(*args, **how), args[3]
    table[0, 1], table[3, 1] = -1, -1  # the second holds the step's own rows, which are then not seen either
    (out, lse), (want, states) = decode(*args, **how), exact(decode_keys, args, how)
    torch.testing.assert_close(out.double(), want, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(lse.double(), states, rtol=2e-6, atol=2e-6)
    assert not torch.equal(out[:3], whole[0][:3]) and torch.equal(out[3:9], whole[0][3:9])


@pytest.mark.parametrize("encoding", ["bf16", "fp8"])
def test_a_sequence_does_not_depend_on_the_batch(encoding):
    (q_latent, q_rope, pool, table, lengths, *scales), how = OPS["mla_decode"].example(
        replace(DRAFTS, encoding=encoding)
    )
    out, lse = decode(q_latent, q_rope, pool, table, lengths, *scales, **how)
    for b in range(4):
        own, one = slice(3 * b, 3 * b + 3), slice(b, b + 1)
        alone = decode(q_latent[own].clone(), q_rope[own].clone(), pool, table[one], lengths[one], *scales, **how)
        assert torch.equal(alone[0], out[own]) and torch.equal(alone[1], lse[own])


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_the_pages_are_combined_by_merge_states(parts):
    """As context or tensor ranks share a history: each sees its pages, some none of a sequence's."""
    args, how = OPS["mla_decode"].example(replace(DRAFTS, tokens_per_page=4))
    table, states = args[3], []
    for part in range(parts):
        kept = torch.arange(table.shape[1]) % parts == part
        states.append(decode(*args[:3], table.masked_fill(~kept, -1), *args[4:], **how))
    merged = torch.ops.kvc.merge_states.default(*(torch.stack(x) for x in zip(*states, strict=True)))
    assert any(lse.eq(-torch.inf).any() for _, lse in states)
    for got, want in zip(merged, decode(*args, **how), strict=True):
        torch.testing.assert_close(got, want, rtol=3e-6, atol=3e-6)


def test_no_sequence_and_no_token():
    (q_latent, q_rope, pool, table, lengths, *scales), how = OPS["mla_decode"].example(DRAFTS)
    out, lse = decode(q_latent[:0], q_rope[:0], pool, table, lengths, *scales, **how)
    assert out.shape == (0, 4, 48) and lse.shape == (0, 4)
    out, lse = decode(q_latent[:0], q_rope[:0], pool, table[:0], lengths[:0], *scales, **how)
    assert out.shape == (0, 4, 48) and lse.shape == (0, 4)
