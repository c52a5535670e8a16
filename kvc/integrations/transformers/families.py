"""The model families kvc serves inside transformers, as data.

A family says where a config keeps the numbers that a spec states too, and where its modules are. Adding one is adding
a row here; whatever its row cannot express is found by the comparison in `matching.py`, not assumed.
"""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

# A rope parameter's name in a transformers config -> its name in a spec.
ROPE_PARAMETERS = MappingProxyType(
    {
        "factor": "factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_max_position_embeddings": "original_max_position",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "attention_factor": "attention_factor",
        "mscale": "mscale",
        "mscale_all_dim": "mscale_all_dim",
    }
)


@dataclass(frozen=True)
class Family:
    """One ``config.model_type``.

    The values of ``fields`` are attributes of the config, by the name a spec gives the same number. ``layers``,
    ``attention`` and ``rotary`` are attributes of the base model, of a decoder layer and of the base model.
    ``rope_layout`` says how the family pairs the features it rotates.
    """

    model_type: str
    summary: str
    fields: MappingProxyType[str, str] = field(
        default_factory=lambda: MappingProxyType(
            {"heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "head_dim": "head_dim"}
        )
    )
    layers: str = "layers"
    attention: str = "self_attn"
    rotary: str = "rotary_emb"
    rope_layout: str = "half"

    def attention_modules(self, base: Any) -> list[Any]:
        """The attention modules of ``base``, in layer order."""
        return [getattr(layer, self.attention) for layer in getattr(base, self.layers)]


FAMILIES = MappingProxyType(
    {
        row.model_type: row
        for row in (
            Family("llama", "Llama 2 and 3, SmolLM2 and other models of that architecture"),
            Family("qwen3", "Qwen3 dense models; K and Q are normed before kvc sees them"),
        )
    }
)
