"""Whatever is asked of a mixed cache, the answer is findings with places, or a spec that can be planned as it says."""

from hypothesis import given, settings
from hypothesis import strategies as st
from spec_kinds import LAYERS, spec_text
from test_spec_fuzz import answer

from kvc.capabilities import PRECISION, mixed_layer, twin_encodings
from kvc.diagnostics import KvcError
from kvc.plan import make_plan
from kvc.specs import load_spec_text
from kvc.specs.compilable import compile_findings
from kvc.specs.resolved import ResolvedSpec

_ENCODINGS = st.sampled_from(["nvfp4", "fp8", "bf16"]) | st.sampled_from(
    [*PRECISION, "index_key", "mixed_nvfp4_fp8", "fp9"]
)
_SCALES = st.sampled_from(
    [", scales: {source: unit}", "", ", scales: {source: unit}", ", scales: {source: checkpoint}"]
) | st.builds(
    ", scales: {{source: values, values: {{{}}}}}".format,
    st.sampled_from(["k: 1.0, v: 1.0", "latent: 0.5", "k: [0.5], v: 2", "latent: 1, rope: 1", "q: 1"]),
)
_TOKENS = st.sampled_from([0, 1, 15, 16, 17, 512, 1024, 2**30])
_RETAIN = st.builds(
    "{{first: {}, last: {}, unit: {}, encoding: {}{}}}".format,
    _TOKENS,
    _TOKENS,
    st.sampled_from(["token", "page"]),
    _ENCODINGS,
    _SCALES,
)
_OVERRIDE = st.builds(
    '{{layers: "{}"{}{}{}}}'.format,
    st.sampled_from(["0", "1", "0-1", "0,2", "2"]),
    st.just("") | st.builds(", encoding: {}".format, _ENCODINGS),
    st.sampled_from(["", ", retain: null"]) | st.builds(", retain: {}".format, _RETAIN),
    _SCALES,
)
_DRAFT = st.builds(
    "draft: {{kind: mtp, layers: 1, max_draft_tokens: 3, encoding: {}, tree: {}{}}}".format,
    _ENCODINGS,
    st.sampled_from(["none", "none", "dynamic"]),
    _SCALES,
)


def _check(spec: ResolvedSpec) -> None:
    """What a valid spec promises."""
    for run in spec.runs:
        row = mixed_layer(run.shape.capability, run.coverage.kind, run.domain)
        assert row.accepts_twin or run.retain is None
        if run.retain and run.shape.fields:
            assert run.retain.encoding in twin_encodings(run.shape.capability, run.encoding)
            assert run.retain.first + run.retain.last > 0
    twins = {group.encoding for group in make_plan(spec).layer_groups if group.role == "twin"}
    assert twins == {run.retain.encoding for run in spec.runs if run.retain and run.shape.fields}
    assert all(note.source and note.help and note.severity == "note" for note in spec.notes)
    assert all(found.source for found in compile_findings(spec))


@given(
    layers=st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=3),
    low=_ENCODINGS,
    scales=_SCALES,
    retain=st.just("") | st.builds(", retain: {}".format, _RETAIN),
    override=st.just("") | st.builds(", overrides: [{}]".format, _OVERRIDE),
    more=st.just("") | _DRAFT,
    dtype=st.sampled_from(["bf16", "fp16", "fp32"]),
)
@settings(max_examples=400, deadline=None)
def test_any_mixed_cache(
    layers: list[str], low: str, scales: str, retain: str, override: str, more: str, dtype: str
) -> None:
    cache = f"encoding: {low}, tokens_per_page: 16{scales}{retain}{override}"
    text = spec_text(*layers, cache=cache, more=more).replace("dtype: bf16", f"dtype: {dtype}", 1)
    answer(text)
    try:
        spec = load_spec_text(text)
    except KvcError:
        return
    _check(spec)
