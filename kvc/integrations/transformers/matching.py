"""Does a compiled program fit a model? Both sides as flat facts, compared field by field."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from kvc.diagnostics import Diagnostic, KvcError, fail
from kvc.integrations.transformers.families import FAMILIES, ROPE_PARAMETERS, Family

Facts = dict[str, Any]  # field -> value, e.g. {"heads": 9, "rope.theta": 100000.0, "coverage": "full"}

# transformers' own defaults for parameters that a config may leave out; a spec always states them.
_ROPE_DEFAULTS: Mapping[str, Facts] = {
    "yarn": {"rope.beta_fast": 32.0, "rope.beta_slow": 1.0},
}


# Options of a `gqa` layer that no family of `FAMILIES` uses.
_NOT_IN_THESE_FAMILIES: Facts = {"softcap": None, "sink_logits": False, "shares_kv_of": None}


def family_of(config: Any) -> Family:
    """The family of a transformers config; raises KvcError KVC603 where kvc has none."""
    if config.model_type in FAMILIES:
        return FAMILIES[config.model_type]
    known = ", ".join(FAMILIES)
    raise fail("KVC603", f"model family {config.model_type!r} is not supported", help=f"supported families: {known}")


def model_facts(config: Any, family: Family) -> list[Facts]:
    """What a model needs of a cache, one dictionary a layer."""
    shared = {name: getattr(config, attribute) for name, attribute in family.fields.items()}
    shared["v_head_dim"] = shared["head_dim"]
    shared["softmax_scale"] = shared["head_dim"] ** -0.5
    shared |= _model_rope(config, family, shared["head_dim"]) | _NOT_IN_THESE_FAMILIES
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    return [shared | {"coverage": _coverage(kind, config)} for kind in kinds]


def program_facts(program: Any) -> list[Facts]:
    """What a program was compiled for, one dictionary a layer."""
    facts = {name: _signature_facts(signature) for name, signature in program.signatures.items()}
    return [facts[binding.signature] for binding in sorted(program.bindings, key=lambda b: b.layer)]


def check_match(program: Any, model: Any, family: Family) -> None:
    """Raise KvcError with one KVC604 a field in which ``model`` and ``program`` differ, naming both values."""
    expected, found = program_facts(program), model_facts(model.config, family)
    differences = [*_whole_model(program, model, len(expected), len(found))]
    differences += _by_layer(expected, found)
    if differences:
        raise KvcError(_finding(program.name, where, want, got) for where, want, got in differences)


def _model_rope(config: Any, family: Family, head_dim: int) -> Facts:
    rope = config.rope_parameters
    kind = rope["rope_type"]
    named = {f"rope.{ROPE_PARAMETERS[k]}": v for k, v in rope.items() if k in ROPE_PARAMETERS and v is not None}
    return {
        "rope.kind": kind,
        "rope.layout": family.rope_layout,
        "rope.dim": int(head_dim * (rope.get("partial_rotary_factor") or 1.0)),
        "rope.theta": rope["rope_theta"],
        **_ROPE_DEFAULTS.get(kind, {}),
        **named,
    }


def _coverage(kind: str, config: Any) -> str:
    if kind == "full_attention":
        return "full"
    return f"window {config.sliding_window}" if kind == "sliding_attention" else kind


def _signature_facts(signature: Mapping[str, Any]) -> Facts:
    shape = dict(signature["shape"])
    rope = shape.pop("rope")
    kind = shape.pop("kind")
    facts = shape | {"coverage": signature["coverage"]} | ({} if kind == "gqa" else {"kind": kind})
    if rope is None:
        return facts | {"rope.kind": "none"}
    params = {**rope, **dict(tuple(pair) for pair in rope["params"])}
    return facts | {f"rope.{name}": value for name, value in params.items() if name != "params"}


def _whole_model(program: Any, model: Any, expected: int, found: int) -> Iterable[tuple[str, Any, Any]]:
    if expected != found:
        yield "number of layers", expected, found
    dtype = _DTYPES.get(str(model.dtype), str(model.dtype))
    if program.dtype != dtype:
        yield "dtype", program.dtype, dtype


_DTYPES = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}


def _by_layer(expected: list[Facts], found: list[Facts]) -> Iterable[tuple[str, Any, Any]]:
    """Differing fields with the layers they differ in, in the order of the fields."""
    where: dict[tuple[str, str, str], list[int]] = {}
    for layer, (want, got) in enumerate(zip(expected, found, strict=False)):
        for name in [*want, *(name for name in got if name not in want)]:
            if not _equal(want.get(name), got.get(name)):
                where.setdefault((name, _show(want.get(name)), _show(got.get(name))), []).append(layer)
    for (name, want_text, got_text), layers in where.items():
        yield f"{name} of {_layers(layers)}", want_text, got_text


def _equal(a: Any, b: Any) -> bool:
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return math.isclose(a, b, rel_tol=1e-6) if numbers else a == b


def _show(value: Any) -> str:
    return "nothing" if value is None else str(value)


def _layers(layers: list[int]) -> str:
    first, last = layers[0], layers[-1]
    if first == last:
        return f"layer {first}"
    ranged = f"{first}-{last}" if last - first + 1 == len(layers) else ",".join(map(str, layers))
    return f"layers {ranged}"


def _finding(name: str, where: str, want: Any, got: Any) -> Diagnostic:
    return Diagnostic(
        "KVC604",
        f"{name} was compiled for another model: {where} is {want} in the spec and {got} in the model",
        help="use the spec of this model, or load the model this spec describes",
    )
