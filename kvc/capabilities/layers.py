"""Which layers can be compiled: lowered to graphs that store their history and read it back.

What can be planned is a wider table, `STORAGE_CAPABILITIES`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerCapability:
    """One supported combination.

    ``twins``: encodings in which retained tokens of such a history may be kept beside it;
    ``phases`` that can read it back; ``dtypes``: activation dtypes that may be stored in it; ``options`` of a layer
    (`softcap`) that its attention can compute; ``draft``: whether it may be a draft layer; ``context``: what Q, K and V
    of context attention may be.
    """

    kind: str
    coverage: str
    encoding: str
    twins: tuple[str, ...]
    phases: tuple[str, ...]
    dtypes: tuple[str, ...]
    options: tuple[str, ...] = ()
    draft: bool = False
    context: tuple[str, ...] = ("act",)


# Kinds whose history can be staged for an engine that computes attention itself.
STAGED_KINDS = ("gqa", "mla")

_BOTH = ("context", "generation")
_FP8_CONTEXT = ("act", "fp8")

LAYER_CAPABILITIES: tuple[LayerCapability, ...] = (
    LayerCapability("gqa", "full", "fp32", (), _BOTH, ("fp32", "bf16", "fp16"), draft=True),
    # No fp16: three bits of its mantissa would go without anyone having asked for a quantized cache.
    LayerCapability("gqa", "full", "bf16", (), _BOTH, ("fp32", "bf16"), draft=True),
    LayerCapability("gqa", "full", "fp8", ("bf16",), _BOTH, ("fp32", "bf16", "fp16"), draft=True),
    LayerCapability("gqa", "full", "nvfp4", ("fp8", "bf16"), _BOTH, ("fp32", "bf16", "fp16"), draft=True),
    LayerCapability("mla", "full", "fp32", (), _BOTH, ("fp32", "bf16", "fp16"), context=_FP8_CONTEXT, draft=True),
    LayerCapability("mla", "full", "bf16", (), _BOTH, ("fp32", "bf16"), context=_FP8_CONTEXT, draft=True),
    LayerCapability("mla", "full", "fp8", ("bf16",), _BOTH, ("fp32", "bf16", "fp16"), context=_FP8_CONTEXT, draft=True),
    *(
        LayerCapability(
            "mla", "full", name, ("fp8", "bf16"), _BOTH, ("fp32", "bf16", "fp16"), context=_FP8_CONTEXT, draft=True
        )
        for name in ("nvfp4", "nvfp4_rope_fp8", "nvfp4_residual")
    ),
    LayerCapability("mla", "full", "fp8_ds_mla", (), _BOTH, ("fp32", "bf16"), context=_FP8_CONTEXT, draft=True),
    LayerCapability("mla_sparse dsa", "full", "fp32", (), _BOTH, ("fp32", "bf16", "fp16")),
    LayerCapability("mla_sparse dsa", "full", "bf16", (), _BOTH, ("fp32", "bf16")),
    LayerCapability("mla_sparse dsa", "full", "fp8", (), _BOTH, ("fp32", "bf16", "fp16")),
    # Rows that are selected are gathered as e4m3 codes, over which those of the twin are copied: so it is in fp8.
    *(
        LayerCapability("mla_sparse dsa", "full", name, ("fp8",), _BOTH, ("fp32", "bf16", "fp16"))
        for name in ("nvfp4", "nvfp4_rope_fp8", "nvfp4_residual")
    ),
    LayerCapability("mla_sparse dsa", "full", "fp8_ds_mla", (), _BOTH, ("fp32", "bf16")),
)
