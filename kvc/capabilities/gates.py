"""What passes ask of a place before they rewrite it for FP8 attention, and the layouts that kernels want."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fp8Context:
    """FP8 attention over a step's own rows.

    ``encodings`` of the cache whose rows are attended to beside them, ``dtypes`` of activations (as graphs write them)
    that are rounded to e4m3 in one op, ``multiple``: head dims are whole 16-byte rows of codes.
    """

    encodings: tuple[str, ...]
    dtypes: tuple[str, ...]
    multiple: int


FP8_CONTEXT = Fp8Context(encodings=("fp8",), dtypes=("bf16", "f32"), multiple=16)


@dataclass(frozen=True)
class Layout:
    """Kernels of ``op`` on ``archs`` of ``device`` read an operand best as ``layout``."""

    op: str
    operand: str
    device: str
    archs: tuple[str, ...]
    layout: str
    reason: str


LAYOUTS: tuple[Layout, ...] = (
    Layout(
        op="mla_context",
        operand="v",
        device="cuda",
        archs=("sm_90", "sm_100", "sm_103"),
        layout="transposed",
        reason="FP8 tensor cores need both operands of a product contiguous along the summed axis",
    ),
)


def layout_wanted(op: str, operand: str, device: str, arch: str | None) -> str | None:
    """The layout that the target's kernels want of an operand; None where they take it as it comes."""
    fits = (row for row in LAYOUTS if (row.op, row.operand, row.device) == (op, operand, device))
    return next((row.layout for row in fits if arch in row.archs), None)
