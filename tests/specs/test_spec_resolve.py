"""What a checked spec says about every layer."""

import pytest
from spec_texts import VALID, broken

from kvc.encodings import Field
from kvc.specs import library_specs, load_spec, load_spec_text
from kvc.specs.models import Spec
from kvc.specs.resolved import LayerRun, Memory, ResolvedSpec, Rope, ScaleSource

_LAYERS = VALID[VALID.index("    - kind") : VALID.index("cache")]
_GQA = "{kind: gqa, heads: 6, kv_heads: 3, head_dim: 16, rope: none}"


def resolve(old: str = "kvc: 1", new: str = "kvc: 1") -> ResolvedSpec:
    return load_spec_text(broken(old, new), "spec.yaml")


def spans(runs: tuple[LayerRun, ...]) -> list[tuple[int, int, str]]:
    return [(run.first, run.count, run.encoding) for run in runs]


def test_defaults_are_filled_in() -> None:
    spec = resolve()
    (run,) = spec.runs
    assert (run.shape.v_head_dim, run.shape.softmax_scale) == (16, 0.25)
    assert run.shape.fields == (Field("k", 3, 16), Field("v", 3, 16))
    assert run.shape.rope == Rope("default", "half", 16, 10000.0)
    assert run.scales == ScaleSource("unit", (("k", 1.0), ("v", 1.0)))
    assert (run.coverage.kind, run.domain, str(run.source)) == ("full", "target", "spec.yaml:7:7")
    assert spec.memory is None and spec.require == ()


def test_rope_numbers_are_kept_by_name() -> None:
    yarn = "{kind: yarn, theta: 1000, dim: 8, layout: interleaved, factor: 4, original_max_position: 64, mscale: 1.0}"
    rope = resolve("{kind: default, theta: 10000}", yarn).runs[0].shape.rope
    assert rope is not None and (rope.kind, rope.layout, rope.dim, rope.theta) == ("yarn", "interleaved", 8, 1000.0)
    assert rope.params == (
        ("beta_fast", 32.0),
        ("beta_slow", 1.0),
        ("factor", 4.0),
        ("mscale", 1.0),
        ("original_max_position", 64.0),
    )
    assert resolve("{kind: default, theta: 10000}", "none").runs[0].shape.rope is None


def test_equal_neighbours_are_one_run() -> None:
    assert spans(resolve(_LAYERS, f"    - {_GQA}\n    - {_GQA}\n").runs) == [(0, 2, "fp8")]
    group = f"    - {{repeat: 5, layers: [{_GQA}]}}\n"
    assert spans(resolve(_LAYERS, group).runs) == [(0, 5, "fp8")]


def test_groups_keep_the_order_of_their_layers() -> None:
    other = _GQA.replace("head_dim: 16", "head_dim: 32")
    runs = resolve(_LAYERS, f"    - {{repeat: 2, layers: [{_GQA[:-1]}, repeat: 2}}, {other}]}}\n").runs
    assert [(run.first, run.count, run.shape.head_dim) for run in runs] == [
        (0, 2, 16),
        (2, 1, 32),
        (3, 2, 16),
        (5, 1, 32),
    ]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("0", [(0, 1, "bf16"), (1, 3, "fp8")]),
        ("0-3", [(0, 4, "bf16")]),
        ("1-2", [(0, 1, "fp8"), (1, 2, "bf16"), (3, 1, "fp8")]),
        ("0,3", [(0, 1, "bf16"), (1, 2, "fp8"), (3, 1, "bf16")]),
        ("0-1,2-3", [(0, 4, "bf16")]),
    ],
)
def test_overrides_cut_runs(layers: str, expected: list[tuple[int, int, str]]) -> None:
    override = f'  overrides: [{{layers: "{layers}", encoding: bf16}}]\ntarget:'
    spec = resolve("target:", override)
    assert spans(spec.runs) == expected
    assert all((run.scales.kind == "none") == (run.encoding == "bf16") for run in spec.runs)


def test_scales_by_layer_and_by_override() -> None:
    by_layer = "{source: values, values: {k: [1.0, 2.0, 2.0, 4.0], v: 0.5}}\n"
    override = '  overrides: [{layers: "0,3", scales: {source: values, values: {k: 8.0, v: [16.0, 32.0]}}}]'
    spec = resolve("{source: unit}\n", f"{by_layer}{override}\n")
    assert [(run.first, run.count, run.scales.values) for run in spec.runs] == [
        (0, 1, (("k", 8.0), ("v", 16.0))),
        (1, 2, (("k", 2.0), ("v", 0.5))),
        (3, 1, (("k", 8.0), ("v", 32.0))),
    ]


def test_memory_is_in_bytes() -> None:
    spec = resolve("kvc: 1", "kvc: 1\nmemory: {device: 139GiB, reserve: 16GB}")
    assert spec.memory == Memory(139 * 2**30, 0.9, 16 * 10**9)


@pytest.mark.parametrize(("most", "buckets"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))])
def test_default_buckets_reach_the_batch_size(most: int, buckets: tuple[int, ...]) -> None:
    text = VALID.replace("  buckets: [1, 2, 4]\n", "").replace("max_sequences: 4", f"max_sequences: {most}")
    assert load_spec_text(text).target.buckets == buckets


@pytest.mark.parametrize("name", library_specs())
def test_values_validate_to_the_same_spec(name: str) -> None:
    spec = load_spec(name)
    again = Spec.model_validate(spec.values)
    assert again.model_dump(mode="json", exclude_defaults=True) == spec.values


def test_null_in_an_override_is_kept() -> None:
    override = '  overrides: [{layers: "0", encoding: bf16, retain: null}, {layers: "1", encoding: bf16}]\ntarget:'
    assert resolve("target:", override).values["cache"]["overrides"] == [
        {"layers": "0", "encoding": "bf16", "retain": None},
        {"layers": "1", "encoding": "bf16"},
    ]


def test_the_digest_is_of_the_meaning() -> None:
    digest = resolve().digest
    assert load_spec_text("# a comment\n" + VALID.replace("{source: unit}", "\n    source: unit")).digest == digest
    assert resolve("kvc: 1", "kvc: 1\nattention: {context: act}").digest == digest
    assert resolve("tokens_per_page: 16", "tokens_per_page: 32").digest != digest
    assert resolve("theta: 10000}", "theta: 10000.0}").digest == digest
