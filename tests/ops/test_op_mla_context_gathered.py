"""kvc::mla_context_gathered over rows gathered in fp32 is kvc::mla_context, bit for bit, of one pool or of two."""

from dataclasses import replace

import torch
from hypothesis import given, settings
from mixed_calls import LATENT_PAIRS, batches, example, same

from kvc.ops.example_inputs import committed

op, gathered = torch.ops.kvc.mla_context.default, torch.ops.kvc.mla_context_gathered.default


def forms(case):
    """The call that reads both pools, and the call on what was gathered of them."""
    args, how = example("mla_context", case.shape)
    twin = case.pool(case.twin), case.twin_table
    paged = op(*args, *twin, *case.scales(case.twin), **how, **case.how)
    rows = case.gathered(committed(case.shape), committed(case.shape))
    rest = {name: value for name, value in how.items() if name not in ("encoding",)}
    return paged, gathered(*args[:4], rows, *args[5:10], *args[12:15], **rest)


@settings(max_examples=40, deadline=None)
@given(batches("mla", LATENT_PAIRS, uniform=False))
def test_reading_both_pools_is_gathering_then_attending(case):
    assert same(*forms(case))


@settings(max_examples=30, deadline=None)
@given(batches("mla", LATENT_PAIRS, uniform=False))
def test_with_everything_retained_it_is_the_plain_high_cache(case):
    case = replace(case, first=10**6, released=())
    plain, how = example("mla_context", case.shape)
    plain[4], plain[10:12] = case.pool(case.twin), case.scales(case.twin)
    assert same(forms(case)[0], op(*plain, **how | {"encoding": case.twin}))


@settings(max_examples=30, deadline=None)
@given(batches("mla", LATENT_PAIRS, uniform=False))
def test_with_no_page_of_the_twin_it_is_the_plain_low_cache(case):
    every = tuple((b, page) for b in range(3) for page in range(50))
    plain, how = example("mla_context", case.shape)
    assert same(forms(replace(case, released=every))[0], op(*plain, **how))
