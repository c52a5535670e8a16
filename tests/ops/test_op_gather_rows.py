"""kvc::gather_rows: what was stored comes back, everything else is 0."""

from dataclasses import replace

import pytest
import torch
from op_oracles import GQA_ENCODINGS, quantized

from kvc.ops import OPS
from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import SHAPES, Shape

gather = torch.ops.kvc.gather_rows.default


@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_reads_back_what_is_stored(shape, encoding):
    shape = replace(
        SHAPES[shape], encoding=encoding, committed=(0,) * len(SHAPES[shape].own), own=SHAPES[shape].lengths
    )
    args, kwargs = OPS["gather_rows"].example(shape)
    found = gather(*args, **kwargs)
    for name, scale, values in zip("kv", args[3], found, strict=True):
        x = inputs.activations(shape, name)
        planes = quantized(encoding, x, scale)
        expected = torch.zeros_like(values)
        decoded = OPS[f"dequantize_{encoding}"].overload(*planes, scale, dtype=shape.dtype)
        own = inputs.sequence_ids(shape) >= 0
        expected[inputs.sequence_ids(shape)[own].long(), inputs.positions(shape)[own].long()] = decoded[own]
        assert torch.equal(values, expected)


@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
def test_other_bytes_change_nothing(encoding):
    """Rows beyond the length on held pages are 0xFF (NaN) in the example; pages not held get other bytes here."""
    args, kwargs = OPS["gather_rows"].example(Shape(encoding=encoding))
    pool, table, lengths, scales = args
    table = table.clone()
    table[2, 0] = -1
    once = gather(pool, table, lengths, scales, **kwargs)
    poisoned = pool.clone()
    unused = sorted(set(range(pool.shape[0])) - set(table.flatten().tolist()))
    poisoned[unused] = 0x55
    again = gather(poisoned, table, lengths, scales, **kwargs)
    for values, same in zip(once, again, strict=True):
        assert not values.isnan().any() and torch.equal(values, same)
        assert not values[2, :16].any() and values[2, 16:39].any() and not values[2, 39:].any()


def test_strided_pool_and_table():
    args, kwargs = OPS["gather_rows"].example(Shape())
    pool, table, lengths, scales = args
    wide = torch.full((pool.shape[0], pool.shape[1] + 48), 0xFF, dtype=torch.uint8)
    wide[:, 16 : 16 + pool.shape[1]] = pool
    view = wide[:, 16 : 16 + pool.shape[1]]
    found = gather(view, table.t().contiguous().t(), lengths.repeat_interleave(2)[::2], scales, **kwargs)
    assert all(torch.equal(a, b) for a, b in zip(found, gather(*args, **kwargs), strict=True))


def test_width_edges():
    """No sequence, no page, and a table that is exactly full."""
    args, kwargs = OPS["gather_rows"].example(Shape(committed=(30,), own=(2,), spare_pages=0))
    pool, table, lengths, scales = args
    full = gather(pool, table[:, :2], lengths, scales, **kwargs)[0]
    assert full.shape == (1, 32, 2, 32) and full.any(-1).all()
    assert gather(pool, table[:0], lengths[:0], scales, **kwargs)[0].shape == (0, 48, 2, 32)
    nothing = gather(pool[:0], torch.full_like(table, -1), lengths, scales, **kwargs)
    assert not nothing[0].any() and not nothing[1].any()
    assert gather(pool, table[:, :0], lengths * 0, scales, **kwargs)[0].shape == (1, 0, 2, 32)
