"""What is known of a family of models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kvc.specs.hf.config import Config, Derived

# Every family reads these.
COMMON_READS = ("model_type", "dtype", "torch_dtype")
ROPE_READS = ("rope_theta", "rope_scaling", "rope_parameters")
HEADS = ("num_attention_heads", "num_key_value_heads")
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Family:
    """Fields of a family's configs and what follows from them.

    ``needs`` must be there, ``reads`` may be, ``ignores`` do not touch the cache; every other field is a finding.
    ``defaults`` is what the family's own class takes for a field that is left out; ``positions`` names the field with
    the longest sequence; ``tokens_per_page`` a size of pages that suits its layers.
    """

    layers: Callable[[Config], list[Derived]]
    needs: tuple[str, ...]
    reads: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    positions: str = "max_position_embeddings"
    tokens_per_page: int = 64
    encoding: str = "bf16"

    @property
    def read_fields(self) -> tuple[str, ...]:
        """All fields that are read."""
        return tuple(dict.fromkeys((*COMMON_READS, self.positions, *self.needs, *self.reads)))
