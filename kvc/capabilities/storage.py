"""What can be planned: which layers may store what, and which histories may have a twin.

Wider than `LAYER_CAPABILITIES`, what can be compiled: bytes are known long before a kernel is.
"""

from dataclasses import dataclass

from kvc.capabilities.mixed import twin_encodings


@dataclass(frozen=True)
class StorageCapability:
    """One encoding of one kind of layer's rows.

    ``kind`` is a layer kind, with its variant where it has several (`mla_sparse dsa`); ``twins``: encodings in which
    retained tokens may be kept beside such a history; ``dtypes``: activation dtypes that may be stored in it;
    ``draft``: whether draft layers may store it.
    """

    kind: str
    encoding: str
    twins: tuple[str, ...]
    dtypes: tuple[str, ...]
    draft: bool = True


_ALL, _NO_FP16 = ("fp32", "bf16", "fp16"), ("fp32", "bf16")

# Encoding -> activation dtypes. No fp16 under bf16: three bits of its mantissa would go without anyone having asked
# for a quantized cache; the rope part of the DeepSeek rows is bf16.
_DTYPES = {"bf16": _NO_FP16, "fp8_ds_mla": _NO_FP16, "fp8_ds_mla_v4": _NO_FP16}

# Kind -> encodings of its histories; `twin_encodings` says which of them may have a twin, and in what.
_TABLE: dict[str, tuple[str, ...]] = {
    "gqa": ("fp32", "bf16", "fp8", "nvfp4"),
    "mla": ("fp32", "bf16", "fp8", "nvfp4", "nvfp4_rope_fp8", "nvfp4_residual", "fp8_ds_mla"),
    "mla_sparse dsa": ("fp32", "bf16", "fp8", "nvfp4", "nvfp4_rope_fp8", "nvfp4_residual", "fp8_ds_mla"),
    "mla_sparse deepseek_v4": ("fp32", "bf16", "fp8", "nvfp4", "nvfp4_rope_fp8", "nvfp4_residual", "fp8_ds_mla_v4"),
}
STORAGE_CAPABILITIES: tuple[StorageCapability, ...] = tuple(
    StorageCapability(kind, encoding, twin_encodings(kind, encoding), _DTYPES.get(encoding, _ALL))
    for kind, encodings in _TABLE.items()
    for encoding in encodings
)

# Encodings of index keys.
INDEX_ENCODINGS: tuple[str, ...] = ("index_key", "bf16", "fp32")

# Layer kind and variant -> coverages that it can have; `recurrent` layers keep a state and no rows.
COVERAGES: dict[str, tuple[str, ...]] = {
    "gqa": ("full", "window", "chunk"),
    "mla": ("full",),
    "mla_sparse dsa": ("full",),
    "mla_sparse deepseek_v4": ("window", "compressed"),
    "recurrent mamba2": ("recurrent",),
    "recurrent gated_delta_net": ("recurrent",),
    "recurrent kda": ("recurrent",),
    "recurrent other": ("recurrent",),
}
