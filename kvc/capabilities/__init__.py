"""What layer kinds, encodings and kernels can do, as pure data: a new ability is a row here."""

from kvc.capabilities.gates import FP8_CONTEXT, LAYOUTS, Fp8Context, Layout, layout_wanted
from kvc.capabilities.kernels import KERNELS, Kernel
from kvc.capabilities.layers import LAYER_CAPABILITIES, LayerCapability
from kvc.capabilities.passes import PASSES
from kvc.capabilities.storage import (
    COVERAGES,
    INDEX_ENCODINGS,
    STORAGE_CAPABILITIES,
    TWINNED_COVERAGES,
    StorageCapability,
)
from kvc.capabilities.targets import ARCHS, MAX_LAYERS, MAX_ROPE_TABLE, PAGE_SIZES

__all__ = [
    "ARCHS",
    "COVERAGES",
    "FP8_CONTEXT",
    "INDEX_ENCODINGS",
    "KERNELS",
    "LAYER_CAPABILITIES",
    "LAYOUTS",
    "MAX_LAYERS",
    "MAX_ROPE_TABLE",
    "PAGE_SIZES",
    "PASSES",
    "STORAGE_CAPABILITIES",
    "TWINNED_COVERAGES",
    "Fp8Context",
    "Kernel",
    "LayerCapability",
    "Layout",
    "StorageCapability",
    "layout_wanted",
]
