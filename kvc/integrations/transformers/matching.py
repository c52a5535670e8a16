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


# Options of a kind of layer that no family of `FAMILIES` uses.
_NOT_IN_THESE_FAMILIES: Mapping[str, Facts] = {
    "gqa": {"softcap": None, "sink_logits": False, "shares_kv_of": None},
    "mla": {"indexer": None},
    "mla_sparse": {},
}
# Names of `layer_types` for layers that keep every token.
_FULL = ("full_attention", "indexed_attention", "deepseek_sparse_attention")


def family_of(config: Any) -> Family:
    """The family of a transformers config; raises KvcError KVC603 where kvc has none."""
    if config.model_type in FAMILIES:
        return FAMILIES[config.model_type]
    known = ", ".join(FAMILIES)
    raise fail("KVC603", f"model family {config.model_type!r} is not supported", help=f"supported families: {known}")


def model_facts(model: Any, family: Family) -> list[Facts]:
    """What a model needs of a cache, one dictionary a layer."""
    config = model.config
    shared = {"kind": family.kind} | {name: getattr(config, attribute) for name, attribute in family.fields.items()}
    shared |= _model_rope(model, family) | _NOT_IN_THESE_FAMILIES[family.kind] | {"attention.kernel": "kvc"}
    modules = family.attention_modules(model.base_model)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * len(modules)
    return [
        shared | {"softmax_scale": module.scaling, "coverage": _coverage(kind, config)} | _sharing(module, family)
        for module, kind in zip(modules, kinds, strict=True)
    ]


def _sharing(module: Any, family: Family) -> Facts:
    """Whether a sparse layer takes another's choice, and how its own index key is rotated."""
    if family.index_layout is None:
        return {}
    shared = module.indexer is None
    return {"indexer.shared": shared, "indexer.rope_layout": None if shared else family.index_layout}


def program_facts(program: Any) -> list[Facts]:
    """What a program was compiled for, one dictionary a layer."""
    facts = {name: _signature_facts(signature) for name, signature in program.signatures.items()}
    return [facts[binding.signature] for binding in sorted(program.bindings, key=lambda b: b.layer)]


def check_match(program: Any, model: Any, family: Family) -> None:
    """Raise KvcError with one KVC604 a field in which ``model`` and ``program`` differ, naming both values."""
    expected, found = program_facts(program), model_facts(model, family)
    differences = [*_whole_model(program, model, len(expected), len(found))]
    differences += _by_layer(expected, found)
    if differences:
        raise KvcError(_finding(program.name, where, want, got) for where, want, got in differences)


def _model_rope(model: Any, family: Family) -> Facts:
    rope = model.config.rope_parameters
    kind = rope["rope_type"]
    return {
        "rope.kind": kind,
        "rope.layout": family.layout(model.config),
        "rope.dim": 2 * getattr(model.base_model, family.rotary).inv_freq.numel(),
        "rope.theta": rope["rope_theta"],
        **_ROPE_DEFAULTS.get(kind, {}),
        **_rope_parameters(kind, rope),
    }


def _rope_parameters(kind: str, rope: Mapping[str, Any]) -> Facts:
    """The kind's own numbers; 0 and None say that one is not given, and ramps are truncated unless a config says no."""
    names = ROPE_PARAMETERS.get(kind, {})
    given = {name: value for name, value in rope.items() if name in names and (value or value is False)}
    return {f"rope.{names[name]}": value for name, value in given.items() if value is not True}


def _coverage(kind: str, config: Any) -> str:
    if kind in _FULL:
        return "full"
    return f"window {config.sliding_window}" if kind == "sliding_attention" else kind


def _signature_facts(signature: Mapping[str, Any]) -> Facts:
    shape = dict(signature["shape"])
    rope = shape.pop("rope")
    facts = _flat(shape) | {"coverage": signature["coverage"], "attention.kernel": signature.get("kernel", "kvc")}
    if rope is None:
        return facts | {"rope.kind": "none"}
    params = {**rope, **dict(tuple(pair) for pair in rope["params"])}
    return facts | {f"rope.{name}": value for name, value in params.items() if name != "params"}


def _flat(shape: Facts) -> Facts:
    """The shape with an indexer's numbers beside its own; how its keys are stored is up to the spec."""
    indexer = shape.get("indexer")
    if indexer is None:
        return shape
    numbers = {f"indexer.{name}": value for name, value in indexer.items() if name != "encoding"}
    return {name: value for name, value in shape.items() if name != "indexer"} | numbers


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
        for name in _compared(want, got):
            if not _equal(want.get(name), got.get(name)):
                where.setdefault((name, _show(want.get(name)), _show(got.get(name))), []).append(layer)
    for (name, want_text, got_text), layers in where.items():
        yield f"{name} of {_layers(layers)}", want_text, got_text


def _compared(want: Facts, got: Facts) -> list[str]:
    """Fields of either side; of layers of another kind the kind alone, the others have no counterpart."""
    if want["kind"] != got["kind"]:
        return ["kind"]
    return [*want, *(name for name in got if name not in want)]


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
