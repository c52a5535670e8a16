"""Which kernels implement an op, where they run and where they can be captured into a graph."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kernel:
    """One implementation of op ``kvc::<op>``.

    ``archs`` None: any architecture of ``devices``; ``capturable``: devices on which a replayable graph may hold it.
    """

    op: str
    name: str
    devices: tuple[str, ...]
    archs: tuple[str, ...] | None
    capturable: tuple[str, ...]
    summary: str


def _reference(op: str) -> Kernel:
    return Kernel(op, "reference", ("cpu", "cuda"), None, ("cpu",), "plain torch; reads lengths on the host")


_OPS = (
    "quantize_fp32",
    "quantize_bf16",
    "quantize_fp8",
    "quantize_fp8_block",
    "quantize_nvfp4",
    "quantize_nvfp4_residual",
    "dequantize_fp32",
    "dequantize_bf16",
    "dequantize_fp8",
    "dequantize_fp8_block",
    "dequantize_nvfp4",
    "dequantize_nvfp4_residual",
    "rope",
    "rope_quantize",
    "store_rows",
    "gather_rows",
    "store_retained_rows",
    "overlay_retained_rows",
    "gather_mixed_rows",
    "stage_history",
    "write_back",
    "append_gqa",
    "append_mla",
    "gqa_context",
    "gqa_context_gathered",
    "gqa_decode",
    "gqa_decode_gathered",
    "expand_mla",
    "mla_context",
    "mla_context_gathered",
    "mla_decode",
    "mla_decode_gathered",
    "index_topk",
    "place_own_rows",
    "mla_sparse",
    "project_heads",
    "merge_states",
    "copy_page_tables",
    "correct_lengths",
    "step_positions",
    "write_rows",
)
KERNELS: tuple[Kernel, ...] = tuple(_reference(op) for op in _OPS)
