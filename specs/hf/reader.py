"""A `config.json` read into plain values, whatever the file turns out to be."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvc.diagnostics import KvcError, Source, fail
from kvc.specs.hf.positions import place_of
from kvc.specs.suggestions import shortened

MAX_BYTES = 16 << 20  # quantized checkpoints list thousands of modules; nothing in a real config is larger


class _Duplicate(Exception):
    """A key that an object has twice."""


@dataclass(frozen=True)
class RawConfig:
    """A config as read: ``path`` as the user gave it, the file's ``text`` and its ``values``."""

    path: str
    text: str
    values: dict[str, Any]

    def source(self, *keys: str) -> Source:
        """Where the key at ``keys`` is written; the start of the file where it is not."""
        line, column = place_of(self.text, keys)
        return Source(self.path, line, column)


def read_config(file: str | Path) -> RawConfig:
    """Read a `config.json`, or the one in a folder. Raises KvcError (KVC150, KVC151, KVC152)."""
    path = Path(file)
    with suppress(OSError, ValueError):  # a name too long, or with a null byte: opening it says so too
        path = path / "config.json" if path.is_dir() else path
    text = _text(_bytes(path), str(path))
    values = _parsed(text, str(path))
    if not isinstance(values, dict):
        message = f"a config is an object of fields, and this is {_kind(values)}"
        raise fail("KVC152", message, source=Source(str(path)), help="name the config.json of a model")
    return RawConfig(str(path), text, values)


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        help = "name a config.json, or the folder it is in"
        raise fail("KVC150", f"cannot read the config: {reason}", source=Source(str(path)[:1000]), help=help) from None
    if len(data) > MAX_BYTES:
        help = "a config.json has a few kilobytes; are these weights, or a tokenizer?"
        raise fail("KVC150", f"the file is larger than {MAX_BYTES >> 20} MiB", source=Source(str(path)), help=help)
    return data


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the file is not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise fail("KVC151", message, source=Source(path), help="name the config.json of a model") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Duplicate(next(name for index, name in enumerate(names) if name in names[:index]))
    return fields


def _parsed(text: str, path: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise _malformed(error.msg, Source(path, error.lineno, error.colno)) from None
    except _Duplicate as error:
        help = "keep one of the two: readers disagree about which one counts"
        raise fail("KVC151", f"`{shortened(str(error))}` is given twice", source=Source(path), help=help) from None
    except RecursionError:
        raise _malformed("nested too deep", Source(path)) from None
    except ValueError as error:  # an integer of thousands of digits
        raise _malformed(str(error).split(";")[0], Source(path)) from None


def _malformed(problem: str, source: Source) -> KvcError:
    return fail("KVC151", f"this is not JSON: {problem}", source=source, help="name the config.json of a model")


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), "null")
