"""Before and after every pass: equal outputs and equal pool bytes, for both phases."""

import pytest
import torch
from latent_programs import latent_program
from tiny_engine import SCHEDULE, TinyEngine, lowered

from kvc.compiler_passes.manager import PIPELINE
from kvc.specs.resolved import Rope

PARTIAL = Rope("default", "interleaved", 8, 10000.0)
CASES = {
    "fp32": lambda: lowered("tiny-fp32"),
    "bf16": lambda: lowered("tiny-bf16"),
    "fp8": lambda: lowered("tiny-fp8"),
    "two signatures": lambda: lowered("tiny-mixed"),
    "without rope": lambda: lowered("tiny-fp8", None),
    "partial interleaved rope": lambda: lowered("tiny-mixed", PARTIAL),
    "mixed": lambda: lowered("tiny-nvfp4-bf16"),
    "mixed, latent": lambda: lowered("tiny-mla-nvfp4-fp8"),
    "latent": lambda: lowered("tiny-mla-bf16"),
    "latent, fp8": lambda: latent_program(context="act"),
    "latent, fp8 context": latent_program,
    "latent, fp8 context, V transposed": lambda: latent_program(arch="sm_90"),
    "latent, fp8 context, fp32": lambda: latent_program(dtype="fp32"),
    "latent, fp8 context, fp16": lambda: latent_program(dtype="fp16"),
    "latent, fp8 context, bf16 cache": lambda: latent_program(encoding="bf16"),
    "latent, fp8 context, odd head dims": lambda: latent_program(nope=24, arch="sm_90"),
    "latent, fp8 context, without rope": lambda: latent_program(rope=None, arch="sm_90"),
}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes, so that NaN equals NaN and 0 does not equal -0."""
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("case", CASES)
def test_every_pass_keeps_outputs_and_pool_bytes(case: str) -> None:
    program, plan = CASES[case]()
    expected = TinyEngine(program, plan).run()
    assert all(torch.isfinite(out.float()).all() for out in expected[: -len(plan.pools)])
    for one in PIPELINE:
        program = one.run(program).program
        actual = TinyEngine(program, plan).run()
        for index, (want, got) in enumerate(zip(expected, actual, strict=True)):
            assert torch.equal(bits(want), bits(got)), f"after {one.name}, value {index}"


def test_the_comparison_sees_a_changed_scale() -> None:
    """The test above is able to fail: one layer's K scale changes the pool and the outputs that read it."""
    program, plan = lowered("tiny-fp8")
    engine = TinyEngine(program, plan)
    name = program.bindings[0].constants["scale.k"]
    engine.constants[name] = engine.constants[name] * torch.tensor([2.0, 0.5])
    changed = [
        not torch.equal(bits(a), bits(b)) for a, b in zip(engine.run(), TinyEngine(program, plan).run(), strict=True)
    ]
    layers, context_steps = len(program.bindings), sum(batch.phase == "context" for batch in SCHEDULE)
    assert changed[-1] and any(changed[layers * context_steps : -1])
