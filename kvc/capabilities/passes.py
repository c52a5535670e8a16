"""The compiler passes by name, in the order in which they run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pass:
    """A pass of the design; ``available`` in this version, so that `compile.require` may name it."""

    name: str
    available: bool


PASSES: tuple[Pass, ...] = (
    Pass("canonicalize", True),
    Pass("hoist_step_invariants", True),
    Pass("fuse_rope_quantize", True),
    Pass("fuse_append", True),
    Pass("fold_overlay", False),
    Pass("fold_gather_into_attention", False),
    Pass("fuse_expand_quantize", True),
    Pass("elide_requantize", True),
    Pass("assign_layouts", True),
    Pass("select_kernels", True),
    Pass("plan_workspace", True),
    Pass("capture_cuda_graphs", True),
)
