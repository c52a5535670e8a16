"""Rotary embeddings of configs, in all the spellings that checkpoints have, to those of the spec language.

`rope_scaling` is the older name and `rope_parameters` the newer, `type` and `rope_type` likewise; the base stands
beside them or inside; a model with two kinds of layers may nest one object per `layer_type`.
"""

from dataclasses import dataclass
from typing import Any

from kvc.diagnostics import Diagnostic, KvcError
from kvc.specs.hf.config import Config
from kvc.specs.hf.fields import FIELD_TYPES
from kvc.specs.suggestions import listed, shortened

_ORIGINAL = ("original_max_position_embeddings", "original_max_position")
# Kind -> (field inside the object, name in a spec); a kind's first `_REQUIRED[kind]` are required.
_KINDS: dict[str, tuple[tuple[str, str], ...]] = {
    "default": (),
    "linear": (("factor", "factor"),),
    "llama3": (
        ("factor", "factor"),
        ("low_freq_factor", "low_freq_factor"),
        ("high_freq_factor", "high_freq_factor"),
        _ORIGINAL,
    ),
    "yarn": (
        ("factor", "factor"),
        _ORIGINAL,
        ("beta_fast", "beta_fast"),
        ("beta_slow", "beta_slow"),
        ("mscale", "mscale"),
        ("mscale_all_dim", "mscale_all_dim"),
        ("attention_factor", "attention_factor"),
        ("truncate", "truncate"),
    ),
}
_REQUIRED = {"default": 0, "linear": 1, "llama3": 3, "yarn": 1}
# Names of the same thing: sections of `mrope` differ for images alone, text has one position in all of them.
_SAME = {"mrope": "default"}
_ABOUT = {"type", "rope_type", "rope_theta", "mrope_section", "mrope_interleaved"}


@dataclass(frozen=True)
class RopeRule:
    """How a family rotates: pairs, and the part of a head if it is one (``partial``: when the config does not say).

    ``ignores`` are further fields inside the object.
    """

    layout: str = "half"
    partial: float | None = None
    ignores: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Site:
    """Which of a model's rotary embeddings: of layers of ``layer_type``, with the base in field ``theta``.

    ``scaled``: an object that is not nested is meant for these layers.
    """

    layer_type: str = ""
    theta: str = "rope_theta"
    scaled: bool = True


def _parameters(config: Config, site: Site) -> Config:
    """The object for ``site``; empty where the config has none."""
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    outer = config.inside(name)
    nested = [key for key, value in outer.values.items() if isinstance(value, dict)]
    if not nested:
        return outer if site.scaled else Config(config.raw, {}, outer.where)
    if site.layer_type in nested:
        return outer.inside(site.layer_type)
    if site.layer_type:
        return Config(config.raw, {}, outer.where)
    message = f"`{name}` has an object for each kind of layer, and this family has one kind"
    raise config.contradiction(message, name, "write one object with `rope_type` and `rope_theta`")


def _kind(inner: Config) -> str:
    inner.check(("type", "rope_type"))
    name = inner.get("rope_type") or inner.get("type") or "default"
    kind: str = _SAME.get(name, name)
    if kind not in _KINDS:
        field = "rope_type" if inner.has("rope_type") else "type"
        plain = f"bytes do not depend on it: `--ignore-field {inner.where[-1]}` takes plain RoPE"
        help = f"supported: {listed(_KINDS)}; {plain}"
        raise KvcError(inner.finding("KVC158", f"specs have no rotary embedding `{shortened(name)}`", field, help))
    return kind


def _unknown(inner: Config, known: set[str]) -> list[Diagnostic]:
    """Fields inside that the kind does not have."""
    return [
        inner.finding(
            "KVC154",
            f"unknown field `{shortened(name)}` of `{inner.where[-1]}`",
            name,
            f"`--ignore-field {'.'.join((*inner.where, name))}` if the cache does not depend on it",
        )
        for name in inner.values
        if name not in known
    ]


def _scaling(config: Config, inner: Config, kind: str) -> dict[str, Any]:
    """The kind's own parameters."""
    pairs = _KINDS[kind]
    missing = [inner.missing(name) for name, _ in pairs[: _REQUIRED[kind]] if not inner.has(name)]
    if missing:
        raise KvcError(missing)
    found = {ours: inner.get(name) for name, ours in pairs}
    if _ORIGINAL in pairs and found[_ORIGINAL[1]] is None:  # as transformers does
        found[_ORIGINAL[1]] = config.get("original_max_position_embeddings") or config.get("max_position_embeddings")
    if found.get("truncate") is True:
        del found["truncate"]
    return {name: value for name, value in found.items() if value is not None and (value or value is False)}


def _rotated(config: Config, inner: Config, rule: RopeRule, width: int) -> int:
    if rule.partial is None:
        return width
    inner.check(("partial_rotary_factor",))
    factor = inner.get("partial_rotary_factor") or config.get("partial_rotary_factor") or rule.partial
    dim = int(width * factor)
    if not 0 < dim <= width:
        message = f"`partial_rotary_factor` {factor} rotates {dim} of {width} features"
        raise config.contradiction(message, "partial_rotary_factor", "write a part of 1, such as 0.5")
    return dim


def _theta(config: Config, inner: Config, site: Site) -> float:
    """The base inside the object, unless these layers have a field of their own and the object is not theirs alone."""
    is_theirs = site.theta == "rope_theta" or inner.where[-1:] == (site.layer_type,)
    theta: float = (inner.get("rope_theta") if is_theirs else None) or config.need(site.theta)
    return theta


def rope(config: Config, width: int, rule: RopeRule, site: Site | None = None) -> dict[str, Any]:
    """The `rope` of a layer whose head has ``width`` features that may rotate. Raises KvcError."""
    site = site or Site()
    inner = _parameters(config, site)
    kind = _kind(inner)
    fields = {name for name, _ in _KINDS[kind]}
    partial = {"partial_rotary_factor"} if rule.partial is not None else set()
    findings = _unknown(inner, _ABOUT | fields | partial | rule.ignores)
    findings += inner.wrong_types(name for name in sorted(fields | {"rope_theta"}) if name in FIELD_TYPES)
    if findings:
        raise KvcError(findings)
    dim = _rotated(config, inner, rule, width)
    return {
        "kind": kind,
        "theta": _theta(config, inner, site),
        **({"dim": dim} if dim != width else {}),
        **({"layout": rule.layout} if rule.layout != "half" else {}),
        **_scaling(config, inner, kind),
    }
