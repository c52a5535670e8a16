"""What the parameters of a program's constants are: artifacts are read from disk, so they are looked at first."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvc.graphs.program import Constant
from kvc.ops.codecs import CODECS

_Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_names(value: Any) -> bool:
    return type(value) is list and bool(value) and all(map(_is_text, value))


def _is_mapping(value: Any) -> bool:
    return type(value) is dict


def _is_codec(value: Any) -> bool:
    return _is_text(value) and value in CODECS


def _is_part(value: Any) -> bool:
    return value in ("w_uk", "w_uv")


# Kind of constant -> the sets of parameters that it can be made from.
_PARAMS: dict[str, tuple[dict[str, _Check], ...]] = {
    "scale": ({"codec": _is_codec, "value": _is_number}, {"codec": _is_codec, "tensors": _is_names}),
    "rope_table": ({"rope": _is_mapping, "rows": _is_size, "sha256": _is_text},),
    "weight": (
        {"tensor": _is_text, "part": _is_part, **dict.fromkeys(("heads", "nope", "v", "latent", "ranks"), _is_size)},
    ),
}


def wrong_params(constants: Mapping[str, Constant]) -> Iterator[str]:
    """What of the parameters cannot be: `program.constants[rope.0].params.rows is -1`."""
    for name, constant in constants.items():
        where, params = f"program.constants[{name}].params", constant.params
        checks = next((row for row in _PARAMS[constant.kind] if row.keys() == params.keys()), None)
        if checks is None:
            yield f"{where}: a {constant.kind} is not made from {', '.join(sorted(params)) or 'nothing'}"
        else:
            yield from (f"{where}.{key} is {params[key]!r}" for key, fits in checks.items() if not fits(params[key]))
