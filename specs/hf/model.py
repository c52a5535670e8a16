"""Which model a config is about, and whether its family understands every field."""

from collections.abc import Iterator
from typing import Any

from kvc.diagnostics import Diagnostic, KvcError
from kvc.specs.hf.config import Config
from kvc.specs.hf.families import FAMILIES, WRAPPERS
from kvc.specs.hf.families.family import Family
from kvc.specs.hf.families.ignored import COMMON_IGNORES
from kvc.specs.hf.fields import shown
from kvc.specs.hf.reader import RawConfig
from kvc.specs.suggestions import nearest, shortened

_TEXT = "text_config"
# Read from the outer object where the text model's own does not have them.
_SHARED = ("dtype", "torch_dtype")


def located(raw: RawConfig, ignore: tuple[str, ...] = ()) -> tuple[Config, Family]:
    """The fields of the text model, without those in ``ignore``, and its family. Raises KvcError."""
    values, where, model_type = _text_model(raw)
    values = _without(raw, values, where, ignore)
    config = Config(raw, {name: value for name, value in values.items() if value is not None}, where)
    family = _family(config, model_type)
    config.defaults = dict(family.defaults)
    if findings := list(_findings(config, family)):
        raise KvcError(
            sorted(findings, key=lambda found: (found.source.line, found.source.column) if found.source else (0, 0))
        )
    return config, family


def _text_model(raw: RawConfig) -> tuple[dict[str, Any], tuple[str, ...], Any]:
    """Fields of the text model, where they are, and its type; the rest of a wrapper is about images or sound."""
    outer = raw.values
    inner = outer.get(_TEXT)
    if not isinstance(inner, dict):
        return outer, (), outer.get("model_type")
    shared = {name: outer[name] for name in _SHARED if name in outer}
    default = WRAPPERS.get(str(outer.get("model_type")))
    return {**shared, **inner}, (_TEXT,), inner.get("model_type") or default


def _without(raw: RawConfig, values: dict[str, Any], where: tuple[str, ...], names: tuple[str, ...]) -> dict[str, Any]:
    """``values`` less the fields at dotted ``names``. Raises KvcError (KVC159) for one that is not there."""
    for name in names:
        parts = name.removeprefix(f"{_TEXT}.").split(".") if where else name.split(".")
        if not _has(values, parts):
            message = f"`--ignore-field {shortened(name)}`: the config has no such field"
            raise KvcError(Diagnostic("KVC159", message, raw.source(), "", nearest(name, values, "fields")))
        values = _removed(values, parts)
    return values


def _has(values: Any, parts: list[str]) -> bool:
    return not parts or (isinstance(values, dict) and parts[0] in values and _has(values[parts[0]], parts[1:]))


def _removed(values: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    first, rest = parts[0], parts[1:]
    kept = {name: value for name, value in values.items() if name != first}
    return {**kept, first: _removed(values[first], rest)} if rest else kept


def _by_architecture(config: Config) -> str | None:
    """The family that `architectures` names: `LlamaForCausalLM` is llama."""
    named = config.values.get("architectures")
    first = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    plain = first.removesuffix("ForCausalLM").lower()
    return next((name for name in FAMILIES if name.replace("_", "") == plain), None)


def _family(config: Config, model_type: Any) -> Family:
    if model_type is None:
        model_type = _by_architecture(config)
    if model_type is None:
        help = "add `model_type`, such as `llama`; is this the config.json of a model?"
        raise KvcError(
            config.finding("KVC152", "a config names its `model_type`, and this one does not", "model_type", help)
        )
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        help = nearest(model_type if isinstance(model_type, str) else "", (*FAMILIES, *WRAPPERS), "supported")
        said = f"`{shortened(model_type)}`" if isinstance(model_type, str) else shown(model_type)
        raise KvcError(config.finding("KVC153", f"unknown model_type {said}", "model_type", help))
    return FAMILIES[model_type]


def _findings(config: Config, family: Family) -> Iterator[Diagnostic]:
    """Every field that is unknown, of a wrong type, or missing."""
    reads = family.read_fields
    known = {*reads, *family.ignores, *COMMON_IGNORES}
    for name in config.values:
        if name not in known:
            meant = nearest(name, known)
            help = f"`--ignore-field {shortened(name)}` if the cache does not depend on it"
            help = f"{meant} Otherwise {help}" if meant.startswith("did you mean") else help
            yield config.finding("KVC154", f"unknown field `{shortened(name)}`", name, help)
    yield from config.wrong_types(reads)
    for name in (family.positions, *family.needs):
        if not config.has(name) and name not in family.defaults:
            yield config.missing(name)
