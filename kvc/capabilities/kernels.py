"""Which kernels implement an op, where they run and where they can be captured into a graph."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kernel:
    """One implementation of op ``kvc::<op>``.

    ``archs`` None: any architecture of ``devices``; the others are those that it was tested on. ``capturable``: devices
    on which a replayable graph may hold it. ``takes``: what a call must be like, as (name, allowed values) of a named
    size (`C`), an attribute (`encoding`) or the dtype of an operand (`q_latent`, `none` where it is not given).
    Of several rows of an op that fit, the first one runs.
    """

    op: str
    name: str
    devices: tuple[str, ...]
    archs: tuple[str, ...] | None
    capturable: tuple[str, ...]
    summary: str
    takes: tuple[tuple[str, tuple[Any, ...]], ...] = ()


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


def _hopper(op: str, name: str, summary: str, **takes: tuple[Any, ...]) -> Kernel:
    return Kernel(op, name, ("cuda",), ("sm_90",), ("cuda",), summary, tuple(takes.items()))


# Kernels of GPUs, in the order of the ops above; of an op's rows the special ones first. A row comes with
# the first run of its tests on a GPU: `index_topk` and `mla_sparse` have kernels that only the interpreter has run yet.
_CODECS = ("fp32", "bf16", "fp8", "fp8_block", "nvfp4", "nvfp4_residual")
_GPU: tuple[Kernel, ...] = (
    *(_hopper(f"{verb}_{codec}", "triton", "one launch") for codec in _CODECS for verb in ("quantize", "dequantize")),
    _hopper("rope", "triton", "one launch"),
    _hopper("rope_quantize", "triton", "one launch"),
    _hopper("store_rows", "triton", "a launch a plane"),
    _hopper("store_retained_rows", "triton", "one launch"),
    _hopper("write_back", "triton", "one launch for both pools"),
    _hopper("append_gqa", "triton", "one launch for both pools and the queries"),
    _hopper("append_mla", "triton", "one launch for both pools and the queries"),
    _hopper("gather_rows", "triton", "one launch"),
    _hopper("overlay_retained_rows", "triton", "one launch"),
    _hopper("gather_mixed_rows", "triton", "gather, dequantize and overlay in one launch"),
    _hopper("stage_history", "triton", "gather and overlay straight into staging"),
    _hopper("place_own_rows", "triton", "a copy and a launch a field"),
    _hopper("gqa_context", "triton", "any encoding and twin, own rows after them"),
    _hopper("gqa_context_gathered", "triton", "gathered rows, own rows after them"),
    _hopper("expand_mla", "triton", "two products and a launch that rounds and places"),
    _hopper("mla_context", "triton", "own rows in one launch, in FP8 with V transposed; waits for cached lengths"),
    _hopper("mla_context_gathered", "triton", "the same over gathered rows"),
    _hopper("gqa_decode", "triton", "any encoding and twin, in fp32"),
    _hopper("gqa_decode_gathered", "triton", "in fp32"),
    _hopper(
        "mla_decode",
        "gluon",
        "fp8 pages of 64 tokens through TMA, tokens on the rows of every product",
        encoding=("fp8",),
        C=(512,),
        R=(64,),
        tokens_per_page=(64,),
        q_latent=("bfloat16",),
        twin=("none",),
    ),
    _hopper("mla_decode", "triton", "any encoding and twin, in fp32"),
    _hopper("mla_decode_gathered", "triton", "rows of DeepSeek's models", C=(512,), R=(64,)),
    _hopper("project_heads", "triton", "a product a head, rounded once"),
    _hopper("merge_states", "triton", "one pass over the parts"),
    _hopper("copy_page_tables", "triton", "all pools in one launch, long rows split"),
    _hopper("correct_lengths", "triton", "one launch"),
    _hopper("step_positions", "triton", "positions and lengths in one launch"),
    _hopper("write_rows", "triton", "one launch"),
)
KERNELS: tuple[Kernel, ...] = (*_GPU, *map(_reference, _OPS))
