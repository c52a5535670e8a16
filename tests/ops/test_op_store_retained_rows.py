"""kvc::store_retained_rows is rope, quantize and store_rows on the twin, byte for byte."""

from dataclasses import replace

import pytest
import torch
from op_oracles import GQA_ENCODINGS, row_planes

from kvc.diagnostics import KvcError
from kvc.ops import OPS
from kvc.ops import example_inputs as inputs
from kvc.ops.example_inputs import SHAPES, Shape

store = torch.ops.kvc.store_retained_rows.default
ops = torch.ops.kvc


@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_ops_apart(shape, encoding):
    shape = replace(SHAPES[shape], encoding=encoding)
    (_, values, rows, table, positions, _), how = OPS["store_retained_rows"].example(shape)
    how["encoding"] = encoding
    scales = [inputs.scale_for(encoding, field) for field in how["fields"]]
    rows = rows.clone()
    rows[::3] = -1  # pages that the twin does not hold
    store(twin := inputs.empty_pool(shape), values, rows, table, positions, scales, **how)
    k = ops.rope.default(values[0], table, positions, layout=how["layout"])
    planes = row_planes(encoding, (k, values[1]), scales)
    ops.store_rows.default(apart := inputs.empty_pool(shape), planes, rows, tokens_per_page=shape.tokens_per_page)
    assert torch.equal(twin, apart)
    store(
        turned := inputs.empty_pool(shape),
        [k, values[1]],
        rows,
        None,
        None,
        scales,
        **(how | {"rotated": None, "layout": None}),
    )
    assert torch.equal(turned, apart)


@pytest.mark.parametrize("missing", [3, 4])
def test_positions_that_are_missing_are_refused_before_any_row_is_written(missing):
    (twin, *args), how = OPS["store_retained_rows"].example(Shape())
    args[missing - 1] = None
    before = twin.clone()
    with pytest.raises(KvcError, match="is missing: k is to be rotated"):
        store(twin, *args, **how)
    assert torch.equal(twin, before)
