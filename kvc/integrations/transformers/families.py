"""The model families kvc serves inside transformers, as data.

A family says where a config keeps the numbers that a spec states too, and where its modules are. Adding one is adding
a row here; whatever its row cannot express is found by the comparison in `matching.py`, not assumed.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

_ORIGINAL = {"original_max_position_embeddings": "original_max_position"}
# Kind of RoPE -> a parameter's name in a transformers config -> its name in a spec.
ROPE_PARAMETERS = MappingProxyType(
    {
        "linear": {"factor": "factor"},
        "llama3": {name: name for name in ("factor", "low_freq_factor", "high_freq_factor")} | _ORIGINAL,
        "yarn": {
            name: name
            for name in (
                *("factor", "beta_fast", "beta_slow", "attention_factor"),
                *("mscale", "mscale_all_dim", "truncate"),
            )
        }
        | _ORIGINAL,
    }
)
_LATENT_FIELDS = MappingProxyType(
    {"heads": "num_attention_heads"}
    | {name: name for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")}
)
_FIELDS = MappingProxyType(
    {
        "gqa": MappingProxyType(
            {
                "heads": "num_attention_heads",
                "kv_heads": "num_key_value_heads",
                "head_dim": "head_dim",
                "v_head_dim": "head_dim",
            }
        ),
        "mla": _LATENT_FIELDS,
        "mla_sparse": MappingProxyType(
            _LATENT_FIELDS
            | {"indexer.heads": "index_n_heads", "indexer.head_dim": "index_head_dim", "indexer.top_k": "index_topk"}
        ),
    }
)


@dataclass(frozen=True)
class Family:
    """One ``config.model_type``.

    ``kind`` is that of the spec's layers, and with it where kvc takes over (`boundaries.py`). ``layers``, ``attention``
    and ``rotary`` are attributes of the base model, of a decoder layer and of the base model. ``rope_layout`` says how
    the family pairs the features it rotates; ``interleave`` is the attribute of the config that says so where there is
    one; ``index_layout`` is how those of index queries and keys are paired. ``query_scale``: queries are multiplied by
    a factor that depends on their positions. ``results`` is how many an attention module returns.
    """

    model_type: str
    summary: str
    kind: str = "gqa"
    layers: str = "layers"
    attention: str = "self_attn"
    rotary: str = "rotary_emb"
    rope_layout: str = "half"
    interleave: str | None = None
    index_layout: str | None = None
    query_scale: bool = False
    results: int = 2

    @property
    def fields(self) -> MappingProxyType[str, str]:
        """A layer's number in a spec -> the attribute of the config that holds it."""
        return _FIELDS[self.kind]

    def attention_modules(self, base: Any) -> list[Any]:
        """The attention modules of ``base``, in layer order."""
        return [getattr(layer, self.attention) for layer in getattr(base, self.layers)]

    def layout(self, config: Any) -> str:
        """How a model of the family pairs features, as a spec says it."""
        if self.interleave is None:
            return self.rope_layout
        return "interleaved" if getattr(config, self.interleave) else "half"


def _latent(model_type: str, summary: str, **differences: Any) -> Family:
    """A family with latent attention."""
    return Family(model_type, summary, kind="mla", **differences)


def _sparse(model_type: str, summary: str, index_layout: str, **differences: Any) -> Family:
    """A family with latent attention over the rows that an indexer chooses."""
    attributes: dict[str, Any] = {"kind": "mla_sparse", "rope_layout": "interleaved", **differences}
    return Family(model_type, summary, index_layout=index_layout, **attributes)


FAMILIES = MappingProxyType(
    {
        row.model_type: row
        for row in (
            Family("llama", "Llama 2 and 3, SmolLM2 and other models of that architecture"),
            Family("qwen3", "Qwen3 dense models; K and Q are normed before kvc sees them"),
            _latent("deepseek_v2", "DeepSeek-V2 and V2-Lite", rope_layout="interleaved"),
            _latent("deepseek_v3", "DeepSeek-V3 and R1", interleave="rope_interleave"),
            _latent("glm4_moe_lite", "GLM-4.7-Flash", interleave="rope_interleave"),
            _latent("mistral4", "Mistral Small 4", interleave="rope_interleave", query_scale=True),
            _sparse("deepseek_v32", "DeepSeek-V3.2", "half"),
            _sparse("glm_moe_dsa", "GLM-5; layers may share an indexer", "interleaved", results=3),
        )
    }
)
