"""kvc::rope_quantize equals rope, then quantize, bit for bit."""

from dataclasses import replace

import pytest
import torch
from op_oracles import GQA_ENCODINGS, quantized

from kvc.ops import OPS
from kvc.ops.example_inputs import SHAPES


@pytest.mark.parametrize("encoding", GQA_ENCODINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_rope_then_quantize(shape, encoding):
    (x, table, positions, scale), kwargs = OPS["rope_quantize"].example(replace(SHAPES[shape], encoding=encoding))
    rotated, *planes = torch.ops.kvc.rope_quantize.default(x, table, positions, scale, **kwargs)
    expected = torch.ops.kvc.rope.default(x, table, positions, layout=kwargs["layout"])
    assert torch.equal(rotated, expected)
    wanted = quantized(encoding, expected, scale)
    assert len(planes) == len(wanted) and all(map(torch.equal, planes, wanted))
