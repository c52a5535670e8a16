"""In what sparse layers gather the rows that were selected, by the encoding of their history.

Rows that are quantized finer than fp8 become e4m3 codes, as does fp8 itself (its bytes are copied), so that attention
reads one form and the rows of a twin in fp8 can be copied over them.
"""

from kvc.specs.resolved import LayerRun, MlaShape

UNIT = "scratch"  # the scale operand, 1, of codes that neither a twin nor the history has a scale for

# Encoding of a history without a twin -> the scale operand of codes; not here: rows of the activation dtype.
_CODES = {"fp8": "latent"} | dict.fromkeys(("nvfp4", "nvfp4_rope_fp8", "nvfp4_residual"), UNIT)


def code_scale(run: LayerRun) -> str | None:
    """The scale operand of the codes that a sparse layer gathers; None where it gathers values or is not sparse."""
    if not isinstance(run.shape, MlaShape) or run.shape.indexer is None:
        return None
    return "twin_latent" if run.retain else _CODES.get(run.encoding)
