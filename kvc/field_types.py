"""Whether plain dataclasses that were read from a file hold what their annotations say."""

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Check = Callable[[Any], bool]


def wrong_field(value: Any, where: str) -> str | None:
    """The first field of a dataclass, or of one inside it, that is not of its type: `plan.pools[0].page_bytes`."""
    for name, hint in _hints(type(value)).items():  # type: ignore[arg-type]
        found, place = getattr(value, name), f"{where}.{name}"
        if not _checker(hint)(found):
            return place
        for label, part in _dataclasses_in(found, place):
            if wrong := wrong_field(part, label):
                return wrong
    return None


def _dataclasses_in(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        yield where, value
    elif isinstance(value, tuple | Mapping):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from _dataclasses_in(item, f"{where}[{key}]")


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


@cache
def _checker(hint: Any) -> Check:
    """The check of one annotation; fields of dataclasses are left to `wrong_field`."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value: True
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in inside
    if origin in (Union, types.UnionType):
        return _any_of(tuple(map(_checker, inside)))
    if origin is tuple and inside[-1] is not Ellipsis:
        return _row(tuple(map(_checker, inside)))
    if origin is tuple:
        return _every(_checker(inside[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_checker(inside[0]), _checker(inside[1]))
    if hint is float:
        return lambda value: type(value) in (int, float)
    return lambda value: type(value) is hint  # a bool is no int


def _any_of(checks: tuple[Check, ...]) -> Check:
    return lambda value: any(check(value) for check in checks)


def _row(checks: tuple[Check, ...]) -> Check:
    def of_row(value: Any) -> bool:
        fits = type(value) is tuple and len(value) == len(checks)
        return fits and all(check(item) for check, item in zip(checks, value, strict=True))

    return of_row


def _every(check: Check) -> Check:
    return lambda value: type(value) is tuple and all(map(check, value))


def _mapping(key: Check, item: Check) -> Check:
    return lambda value: isinstance(value, Mapping) and all(map(key, value)) and all(map(item, value.values()))
