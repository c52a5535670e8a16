"""The plan as people see it."""

import pytest
from hypothesis import given, settings
from plan_specs import GIB, make_run, make_spec, specs

from kvc.plan import make_plan
from kvc.plan.units import format_size
from kvc.report.plan_table import WIDTH, layer_ranges, plan_table
from kvc.report.table import table
from kvc.specs.resolved import Coverage, Memory


def window_spec(**other):
    window = {"coverage": Coverage("window", 70)}
    runs = (
        make_run(0, line=4),
        make_run(1, line=5, **window),
        make_run(2, line=6),
        make_run(3, encoding="fp8", line=7),
    )
    return make_spec(*runs, **other)


def test_snapshot():
    assert plan_table(make_plan(window_spec(memory=Memory(139 * GIB, 0.9, 0)))) == WINDOW_TABLE


def test_no_memory_says_how_to_give_it():
    text = plan_table(make_plan(window_spec()))
    assert "capacity unknown: give `memory: {device: 139GiB}` in the spec" in text
    assert "tokens in" not in text


@settings(max_examples=50)
@given(specs())
def test_width_and_citations(spec):
    plan = make_plan(spec)
    lines = plan_table(plan).splitlines()
    assert max(map(len, lines)) <= WIDTH
    for group in plan.layer_groups:
        (row,) = [line for line in lines if line.startswith(f"{group.name} ")]
        assert row.split()[-1] == str(group.source.line)


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        ([0], "0"),
        ([0, 1, 2, 30], "0-2,30"),
        (range(100_000), "0-99999"),
        (range(0, 24, 2), "0,2,4,6,8..(12)"),
        (range(100_000, 200_000, 2), "100000..(50000)"),
    ],
)
def test_layer_ranges(layers, text):
    assert layer_ranges(layers) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (139 * GIB, "139 GiB"),
        (80 * 10**9, "74.51 GiB"),
        (2**60, "1,048,576 TiB"),
    ],
)
def test_format_size(size, text):
    assert format_size(size) == text


def test_columns_of_numbers_are_right_aligned():
    assert (
        table(("name", "n"), [("a", 1000), ("long name", None)])
        == "name           n\na          1,000\nlong name      -"
    )


WINDOW_TABLE = """\
m: 4 layers, spec b.yaml, digest dddddddddddd

total                 bytes  meaning
bytes per token      10,240  slope: grows with every token
bytes per sequence  524,288  fixed: windows, states, twins at their longest
smallest request    458,752  bytes; derived: slots of one token

group  layers  encoding   S  page bytes  B/token  B/sequence  spec line
gqa0   0,2     bf16      32     131,072    8,192           0  4
gqa1   1       bf16      32     131,072        0     524,288  5
gqa2   3       fp8       32      65,536    2,048           0  7
S: tokens per page; page bytes of one layer; B/token, B/sequence of the group

lifecycle  domain  keeps      pool group  B/token  B/sequence  spec line
        0  target  full                0   10,240           0  4, 7
        1  target  window 70           1        0     524,288  5

pool  lifecycle  pool group  pages in a slot  slot bytes    slots  spec line
   0          0           0  2 x 131,072         262,144  399,929  4
   1          0           0  1 x 65,536           65,536  399,929  7
   2          1           1  1 x 131,072         131,072   24,996  5

beside the pools   bytes  meaning
scale operands         0  equal scales are stored once
RoPE tables            0  cos and sin up to max_seq_len
page tables       10,240  slots and pages of a full step
null page              0  not needed: padding touches no page
scratch                -  of layers; -: known once they are compiled

capacity              amount  meaning
device       149,250,113,536  139 GiB
reserve                    0  0 B
cache        134,325,102,182  125.1 GiB (0.9 of 139 GiB)
whole slots  134,325,010,432  125.1 GiB
tokens            12,797,728  in whole pages (derived)
sequences              6,248  of 2,048 tokens each (derived)

[██████████████████████████████████████████████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓##········]
   memory            bytes  share    meaning
█  gqa0    104,838,987,776   70.2 %  bf16, full
▓  gqa2     26,209,746,944   17.6 %  fp8, full
#  fixed     3,276,275,712    2.2 %  windows, states, twins
·  free     14,925,103,104   10.0 %  neither cache nor reserve

note: not subtracted: weights, activations and workspace (give `memory.reserve`)"""
