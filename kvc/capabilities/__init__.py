"""What layer kinds, encodings and kernels can do, as pure data: a new ability is a row here."""

from kvc.capabilities.gates import FP8_CONTEXT, LAYOUTS, Fp8Context, Layout, layout_wanted
from kvc.capabilities.kernels import KERNELS, Kernel
from kvc.capabilities.layers import LAYER_CAPABILITIES, STAGED_KINDS, LayerCapability
from kvc.capabilities.mixed import (
    DRAFT_LAYER,
    DRAFT_TREES,
    INDEX_KEY,
    MIXED_LAYERS,
    PRECISION,
    REFUSED_VARIANTS,
    TWIN_READS,
    UNTWINNED,
    MixedLayer,
    TwinReads,
    mixed_layer,
    twin_encodings,
)
from kvc.capabilities.passes import PASSES
from kvc.capabilities.storage import (
    COVERAGES,
    INDEX_ENCODINGS,
    STORAGE_CAPABILITIES,
    StorageCapability,
)
from kvc.capabilities.targets import ARCHS, MAX_LAYERS, MAX_ROPE_TABLE, PAGE_SIZES

__all__ = [
    "ARCHS",
    "COVERAGES",
    "DRAFT_LAYER",
    "DRAFT_TREES",
    "FP8_CONTEXT",
    "INDEX_ENCODINGS",
    "INDEX_KEY",
    "KERNELS",
    "LAYER_CAPABILITIES",
    "LAYOUTS",
    "MAX_LAYERS",
    "MAX_ROPE_TABLE",
    "MIXED_LAYERS",
    "PAGE_SIZES",
    "PASSES",
    "PRECISION",
    "REFUSED_VARIANTS",
    "STAGED_KINDS",
    "STORAGE_CAPABILITIES",
    "TWIN_READS",
    "UNTWINNED",
    "Fp8Context",
    "Kernel",
    "LayerCapability",
    "Layout",
    "MixedLayer",
    "StorageCapability",
    "TwinReads",
    "layout_wanted",
    "mixed_layer",
    "twin_encodings",
]
