"""What layer kinds, encodings and kernels can do, as pure data: a new ability is a row here."""

from kvc.capabilities.kernels import KERNELS, Kernel
from kvc.capabilities.layers import LAYER_CAPABILITIES, LayerCapability
from kvc.capabilities.passes import PASSES, Pass
from kvc.capabilities.targets import (
    ARCHS,
    MAX_LAYERS,
    MAX_ROPE_TABLE,
    PAGE_SIZES,
    PLANNED_ENCODINGS,
    PLANNED_LAYER_KINDS,
    PLANNED_SCALE_SOURCES,
)

__all__ = [
    "ARCHS",
    "KERNELS",
    "LAYER_CAPABILITIES",
    "MAX_LAYERS",
    "MAX_ROPE_TABLE",
    "PAGE_SIZES",
    "PASSES",
    "PLANNED_ENCODINGS",
    "PLANNED_LAYER_KINDS",
    "PLANNED_SCALE_SOURCES",
    "Kernel",
    "LayerCapability",
    "Pass",
]
