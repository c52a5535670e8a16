"""Resolved specs made by hand, and strategies that draw them."""

from hypothesis import strategies as st

from kvc.diagnostics import Source
from kvc.specs.resolved import Coverage, GqaShape, LayerRun, Memory, ResolvedSpec, ScaleSource, Target

GIB = 2**30


def make_run(first=0, count=1, kv_heads=8, head_dim=128, v_head_dim=None, encoding="bf16", line=8, **other):
    defaults = {
        "coverage": Coverage(),
        "tokens_per_page": 32,
        "domain": "target",
        "source": Source("a/b.yaml", line, 3),
    }
    shape = GqaShape(kv_heads * 2, kv_heads, head_dim, v_head_dim or head_dim, 1.0, None)
    scales = ScaleSource("unit" if encoding == "fp8" else "none")
    return LayerRun(first, count, shape, encoding=encoding, scales=scales, **defaults | other)


def make_spec(*runs, memory=None, max_seq_len=2048, name="m"):
    target = Target("cpu", None, 8, max_seq_len, 512, (1, 2))
    return ResolvedSpec(name, "a/b.yaml", "d" * 64, "bf16", 8192, runs, memory, target, (), {})


COVERAGES = (Coverage(), Coverage("window", 100), Coverage("window", 64, keep_first=5), Coverage("first_last", 33, 40))


MEMORIES = st.builds(Memory, st.integers(10**6, 10**9), st.sampled_from([0.9, 1.0, 0.37]), st.sampled_from([0, 999]))
ANY_MEMORY = st.none() | MEMORIES


@st.composite
def specs(draw, coverages=COVERAGES, memory=ANY_MEMORY, max_runs=8):
    """Up to ``max_runs`` runs of layers of any coverage; layers of one coverage have one page size."""
    sizes = {coverage: draw(st.sampled_from([1, 16, 24, 64])) for coverage in coverages}
    runs, first = [], 0
    for line in range(draw(st.integers(1, max_runs))):
        coverage = draw(st.sampled_from(coverages))
        run = make_run(
            first,
            draw(st.integers(1, 5)),
            draw(st.integers(1, 3)),
            draw(st.sampled_from([1, 3, 64])),
            draw(st.sampled_from([1, 5, 64])),
            draw(st.sampled_from(["bf16", "fp8", "fp32"])),
            line + 1,
            coverage=coverage,
            tokens_per_page=sizes[coverage],
        )
        runs.append(run)
        first += run.count
    return make_spec(*runs, memory=draw(memory), max_seq_len=draw(st.integers(1, 5000)))
