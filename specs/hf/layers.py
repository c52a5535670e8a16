"""What several families share: the order of their layers, their windows, and attention with plain or latent rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvc.specs.hf.config import Config, Derived
from kvc.specs.hf.rope import RopeRule, Site, rope
from kvc.specs.suggestions import listed, shortened

Spec = dict[str, Any]
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


@dataclass(frozen=True)
class Gqa:
    """How a family's attention follows from its fields.

    ``head_rule``: hidden_size // num_attention_heads where `head_dim` is left out, as the family's code has it;
    ``exact``: its class refuses sizes that do not divide.
    """

    rope: RopeRule | None = field(default_factory=RopeRule)
    site: Site = field(default_factory=Site)
    head_rule: bool = False
    exact: bool = False
    sinks: bool = False
    fields: dict[str, str] = field(default_factory=dict)  # role -> name of its field, where it is not the usual one


def head_dim(config: Config, rule: Gqa, name: str = "head_dim") -> int:
    """Features of a head. Raises KvcError (KVC155) where the config does not say and the family has no rule."""
    given: int | None = config.get(name)
    if given is not None or not rule.head_rule:
        return given or int(config.need(name))
    hidden, heads = config.need("hidden_size"), config.need("num_attention_heads")
    if hidden < heads or (rule.exact and hidden % heads):
        message = f"hidden_size {hidden} does not divide into {heads} heads, and `head_dim` is missing"
        raise config.contradiction(message, "hidden_size", "add `head_dim`")
    if hidden % heads:
        config.note("hidden_size / num_attention_heads is rounded down, as the family's code does")
    return int(hidden // heads)


def gqa(config: Config, rule: Gqa, window: int | None = None) -> Spec:
    """A `gqa` layer; with a ``window``, if any."""
    names = {role: rule.fields.get(role, role) for role in ("num_attention_heads", "num_key_value_heads", "head_dim")}
    heads = config.need(names["num_attention_heads"])
    width = head_dim(config, rule, names["head_dim"])
    layer = {
        "kind": "gqa",
        "heads": heads,
        "kv_heads": config.get(names["num_key_value_heads"]) or heads,
        "head_dim": width,
    }
    if window is not None:
        layer["window"] = window
    if rule.sinks:
        layer["sink_logits"] = True
    layer["rope"] = rope(config, width, rule.rope, rule.site) if rule.rope else "none"
    return layer


def mla(config: Config, rule: RopeRule | None) -> Spec:
    """An `mla` layer."""
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    layer = {"kind": "mla", "heads": config.need("num_attention_heads"), **{name: config.need(name) for name in names}}
    given, sum_of_parts = config.get("qk_head_dim"), layer["qk_nope_head_dim"] + layer["qk_rope_head_dim"]
    if given not in (None, sum_of_parts):
        message = f"`qk_head_dim` {given} is not qk_nope_head_dim + qk_rope_head_dim = {sum_of_parts}"
        raise config.contradiction(message, "qk_head_dim", f"write {sum_of_parts}")
    layer["rope"] = rope(config, layer["qk_rope_head_dim"], rule) if rule else "none"
    return layer


def window(config: Config, name: str = "sliding_window", more: int = 0) -> int | None:
    """Tokens of a window; none, with a note, where it is as long as the longest sequence."""
    size: int | None = config.get(name)
    if size is None:
        return None
    longest = config.get("max_position_embeddings")
    if longest is not None and size + more >= longest:
        config.note(f"{name} {size} is no limit: sequences have {longest} tokens at most")
        return None
    return size + more


def every_layer(config: Config, build: Callable[..., Spec], *arguments: Any) -> list[Derived]:
    """All layers alike."""
    count = config.need("num_hidden_layers")
    return [config.derive(build, *arguments)] * count


def interval(config: Config, often: str, seldom: str, every: int) -> list[str]:
    """Names of layers: each ``every``-th is ``seldom``."""
    return [seldom if (index + 1) % every == 0 else often for index in range(config.need("num_hidden_layers"))]


def check_length(config: Config, name: str, names: Sequence[Any]) -> None:
    """Raise KvcError (KVC157) where a list does not have one entry a layer."""
    count = config.need("num_hidden_layers")
    if len(names) != count:
        message = f"`{name}` has {len(names)} entries for {count} layers"
        raise config.contradiction(message, name, f"num_hidden_layers is {count}: one entry a layer")


def layer_names(config: Config, derived: Callable[[], list[str]] | None, allowed: Sequence[str]) -> list[str]:
    """`layer_types`, or what the family's rule makes of it. Raises KvcError (KVC155, KVC157)."""
    names: list[str] | None = config.get("layer_types")
    if names is None:
        return derived() if derived else list(config.need("layer_types"))
    check_length(config, "layer_types", names)
    if strange := [name for name in names if name not in allowed]:
        message = f"`layer_types` names `{shortened(strange[0])}`, which this family does not have"
        raise config.contradiction(message, "layer_types", f"supported: {listed(allowed)}")
    return list(names)


def agree(config: Config, field: str, names: list[str], derived: list[str]) -> None:
    """Raise KvcError (KVC157) where ``field`` and `layer_types` say different things about the order of layers."""
    if config.has(field) and config.has("layer_types") and names != derived:
        first = next(index for index, pair in enumerate(zip(names, derived, strict=True)) if pair[0] != pair[1])
        message = f"`layer_types` and `{field}` contradict each other: layer {first} is {names[first]} by the one, "
        raise config.contradiction(f"{message}{derived[first]} by the other", field, "remove one of the two")


def by_name(names: Sequence[str], made: dict[str, Derived]) -> list[Derived]:
    """The layer of each name."""
    return [made[name] for name in names]


def sliding_size(config: Config, name: str = "sliding_window") -> None:
    """Raise KvcError (KVC157) where layers slide and the size of the window is left out."""
    if config.get(name) is None:
        message = f"there are sliding layers, and `{name}`, the size of their window, is missing"
        raise config.contradiction(message, name, f"add `{name}`, or make all layers full attention")
