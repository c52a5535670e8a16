"""Names of dtypes in configs and in specs."""

from kvc.specs.hf.config import Config
from kvc.specs.suggestions import listed, shortened

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def activation_dtype(config: Config) -> str:
    """The model's dtype, `dtype` in newer configs; bf16, with a note, where the config has none. Raises KVC157."""
    name = "dtype" if config.has("dtype") else "torch_dtype"
    given = config.get(name)
    if given is None:
        config.note("not in the config: bf16 activations")
        return "bf16"
    plain = given.removeprefix("torch.")
    if plain not in DTYPES:
        message = f"`{name}` is `{shortened(given)}`, which no activations have"
        raise config.contradiction(message, name, f"supported: {listed(DTYPES)}; remove it for bfloat16")
    return DTYPES[plain]
