"""Programs of latent layers with an fp8 cache and fp8 context attention, as lowering makes them."""

from dataclasses import replace

from tiny_engine import lowered_spec

from kvc.graphs.program import Program
from kvc.plan.types import Plan
from kvc.specs import load_spec
from kvc.specs.resolved import ContextAttention, ResolvedSpec, Rope, ScaleSource

ROPE = Rope("default", "interleaved", 16, 10000.0)
CONTEXT_SCALES = ScaleSource("values", (("q", 0.11), ("k", 0.07), ("v", 0.013)))
SCALES = {"fp8": ScaleSource("values", (("latent", 0.03),))}


def latent_spec(
    encoding: str = "fp8",
    context: str = "fp8",
    dtype: str = "bf16",
    nope: int = 16,
    rope: Rope | None = ROPE,
    arch: str = "",
) -> ResolvedSpec:
    """`tiny-mla-bf16` with other rows and heads; ``arch`` makes it one for a GPU."""
    spec = load_spec("tiny-mla-bf16")
    (run,) = spec.runs
    shape = replace(run.shape, qk_nope_head_dim=nope, qk_rope_head_dim=16, rope=rope)
    attention = ContextAttention("fp8", CONTEXT_SCALES) if context == "fp8" else ContextAttention()
    scales = SCALES.get(encoding, run.scales)
    run = replace(run, shape=shape, encoding=encoding, scales=scales, context=attention)
    target = replace(spec.target, device="cuda", arch=arch) if arch else spec.target
    return replace(spec, runs=(run,), dtype=dtype, target=target)


def latent_program(**how: object) -> tuple[Program, Plan]:
    """The lowered program of `latent_spec`, and its plan."""
    return lowered_spec(latent_spec(**how))  # type: ignore[arg-type]
