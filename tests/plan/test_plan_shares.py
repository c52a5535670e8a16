"""Shares of bytes, and the memory bar made of them."""

from dataclasses import replace
from io import BytesIO, TextIOWrapper

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_specs import GIB, MEMORIES, make_run, make_spec, specs

from kvc.plan import make_plan
from kvc.plan.capacity import bytes_for_lengths, bytes_for_tokens
from kvc.plan.shares import divide_memory, group_bytes, sequence_curve, shares
from kvc.report.memory_bar import ASCII, BLOCKS, WIDTH, memory_bar, style_for
from kvc.specs import load_spec
from kvc.specs.resolved import Coverage, Memory

MIXES = st.dictionaries(st.integers(1, 5000), st.integers(1, 9), max_size=4)


@given(specs(), MIXES)
def test_shares_add_up_to_the_bytes_of_the_mix(spec, mix):
    plan = make_plan(spec)
    total = bytes_for_lengths(plan, mix)
    assert sum(group_bytes(plan, mix).values()) == total
    assert sum(share.nbytes for share in shares(plan, mix)) == total


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v4", "qwen3-next", "gpt-oss-20b", "kimi-linear"])
def test_shares_of_library_specs_add_up(name):
    plan = make_plan(load_spec(name))
    found = shares(plan, {1000: 3, 70: 1})
    assert sum(share.nbytes for share in found) == bytes_for_lengths(plan, {1000: 3, 70: 1})


def test_scales_and_rounding_are_parts_of_their_own():
    plan = make_plan(load_spec("deepseek-v3"))
    (scales,) = [share for share in shares(plan, {64: 1}) if share.part == "scales"]
    assert (scales.group.name, scales.nbytes) == ("mla0", 61 * 2 * 64 * 36)  # 64 tokens and 3 drafted: two pages
    rounding = [
        share.nbytes for share in shares(make_plan(load_spec("deepseek-v4")), {256: 1}) if share.part == "rounding"
    ]
    assert rounding == [23 * 560, 43 * 256, 20 * 64]


@given(specs(memory=MEMORIES), st.booleans())
def test_the_parts_of_a_device_add_up(spec, weighted):
    if weighted:
        lifecycles = len(make_plan(spec).lifecycles)
        spec = replace(spec, memory=replace(spec.memory, pool_ratio=tuple(range(1, lifecycles + 1))))
    plan = make_plan(spec)
    found = divide_memory(plan)
    parts = (*found.growing.values(), found.fixed_bytes, found.idle_bytes, found.reserve_bytes, found.free_bytes)
    assert min(parts) >= 0
    assert sum(parts) == found.memory_bytes == spec.memory.device_bytes
    assert weighted or found.idle_bytes == 0
    assert set(found.growing) == {group.name for group in plan.layer_groups if group.bytes_per_token}


def test_no_memory_no_bar():
    plan = make_plan(make_spec(make_run()))
    assert memory_bar(plan) == ""
    with pytest.raises(ValueError, match="no capacity"):
        divide_memory(plan)


@pytest.mark.parametrize("longest", [1, 2, 3, 1000, 4096])
def test_the_curve_is_the_plan_s(longest):
    plan = make_plan(load_spec("gpt-oss-20b"))
    curve = sequence_curve(plan, longest)
    lengths = [tokens for tokens, _ in curve]
    assert (lengths[0], lengths[-1]) == (1, longest)
    assert lengths == sorted(set(lengths))
    assert all(nbytes == bytes_for_tokens(plan, tokens) for tokens, nbytes in curve)


# ---- the bar -----------------------------------------------------------------------------------------------------


def mixed_plan():
    """Two encodings that grow, a window, weights that leave slots idle, a reserve, and a fraction left free."""
    window = {"coverage": Coverage("window", 70)}
    runs = (make_run(0, 4), make_run(4, 4, encoding="fp8"), make_run(8, 8, **window))
    memory = Memory(16 * GIB, 0.9, 2 * GIB, (3.0, 1.0))
    return make_plan(make_spec(*runs, memory=memory, max_seq_len=512))


def test_the_bar():
    assert memory_bar(mixed_plan()) == BAR


def test_the_bar_in_ascii():
    assert memory_bar(mixed_plan(), ASCII) == BAR.translate(str.maketrans(BLOCKS.characters, ASCII.characters))
    assert ASCII.characters.isascii()
    assert len(ASCII.characters) == len(BLOCKS.characters) == len(set(BLOCKS.characters)) == len(set(ASCII.characters))


def test_colours_paint_and_do_not_move():
    painted = memory_bar(mixed_plan(), replace(BLOCKS, colours=(34, 33, 36, 35, 32)))
    assert "\033[34m█" in painted
    for number in (34, 33, 0):
        painted = painted.replace(f"\033[{number}m", "")
    assert painted == BAR


@given(specs(memory=MEMORIES))
def test_every_bar_has_its_width(spec):
    plan = make_plan(spec)
    bar, _, *legend = memory_bar(plan).splitlines()
    assert len(bar) == WIDTH
    assert max(map(len, legend)) <= WIDTH
    assert {line[0] for line in legend} == set(bar[1:-1])
    assert (BLOCKS.free in bar) == (divide_memory(plan).free_bytes > 0)


def test_many_groups_share_the_last_segment():
    runs = [make_run(at, at + 1, kv_heads=1 + at) for at in range(9)]
    firsts = [sum(range(at + 1)) for at in range(9)]
    plan = make_plan(
        make_spec(
            *(replace(run, first=first) for run, first in zip(runs, firsts, strict=True)), memory=Memory(GIB, 1.0, 0)
        )
    )
    names = [line.split()[1] for line in memory_bar(plan).splitlines()[2:]]
    assert names[:5] == ["gqa5", "gqa6", "gqa7", "gqa8", "5"]  # "5 more"


class Terminal(TextIOWrapper):
    def isatty(self):
        return True


@pytest.mark.parametrize(("encoding", "style"), [("utf-8", BLOCKS), ("ascii", ASCII), ("latin-1", ASCII)])
def test_the_style_suits_the_stream(encoding, style, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert style_for(TextIOWrapper(BytesIO(), encoding)) == style
    assert style_for(Terminal(BytesIO(), encoding)).colours
    monkeypatch.setenv("NO_COLOR", "1")
    assert style_for(Terminal(BytesIO(), encoding)) == style


BAR = """\
[██████████████████████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓###############-//////////·······]
   memory           bytes  share    meaning
█  gqa0     6,761,742,336   39.4 %  bf16, full
▓  gqa1     3,380,871,168   19.7 %  fp8, full
#  fixed    3,381,657,600   19.7 %  windows, states, twins
-  idle         3,932,160    0.0 %  slots that no sequence can use
/  reserve  2,147,483,648   12.5 %  not for the cache
·  free     1,504,182,272    8.8 %  neither cache nor reserve"""
