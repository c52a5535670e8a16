"""Which layers can store their history how."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerCapability:
    """One supported combination.

    ``twins``: encodings in which retained tokens of such a history may be kept beside it (none yet);
    ``phases`` that can read it back; ``dtypes``: activation dtypes that may be stored in it.
    """

    kind: str
    coverage: str
    encoding: str
    twins: tuple[str, ...]
    phases: tuple[str, ...]
    dtypes: tuple[str, ...]


_BOTH = ("context", "generation")

LAYER_CAPABILITIES: tuple[LayerCapability, ...] = (
    LayerCapability("gqa", "full", "fp32", (), _BOTH, ("fp32", "bf16", "fp16")),
    # No fp16: three bits of its mantissa would go without anyone having asked for a quantized cache.
    LayerCapability("gqa", "full", "bf16", (), _BOTH, ("fp32", "bf16")),
    LayerCapability("gqa", "full", "fp8", (), _BOTH, ("fp32", "bf16", "fp16")),
)
