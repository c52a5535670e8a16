"""The compiler passes by name, in the order in which they run."""

PASSES: tuple[str, ...] = (
    "canonicalize",
    "hoist_step_invariants",
    "fuse_rope_quantize",
    "fuse_append",
    "fold_overlay",
    "fold_gather_into_attention",
    "fuse_expand_quantize",
    "elide_requantize",
    "assign_layouts",
    "select_kernels",
    "plan_workspace",
    "capture_cuda_graphs",
)
