"""The families of models that can be imported, by `model_type`.

A family lists the fields it reads and the ones it may ignore, and has one function from its fields to its layers. To
add one, write a `Family` in the file of its kind, and a config with its name into `tests/data/hf_configs/`.
"""

from kvc.specs.hf.families import dense, hybrid, latent, windowed
from kvc.specs.hf.families.family import Family

FAMILIES: dict[str, Family] = {**dense.FAMILIES, **windowed.FAMILIES, **latent.FAMILIES, **hybrid.FAMILIES}

# Configs of models for more than text, with a text model inside -> the type of that, where it does not name its own.
WRAPPERS: dict[str, str] = {
    "gemma3": "gemma3_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "kimi_k25": "deepseek_v3",
    "mistral3": "mistral",
}
