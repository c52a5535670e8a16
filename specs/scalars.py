"""What a plain YAML scalar means, and which ones are refused because readers disagree about them.

Accepted are the readings that YAML 1.1 (PyYAML) and YAML 1.2 share. Everything that one of them would turn into
something else is a trap: it gets a hint that says what to write instead.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

MAX_DIGITS = 18  # of an integer: every real number of a spec fits, and int() never meets a megabyte of digits

_WORDS: dict[str, Any] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)([eE][-+][0-9]{1,3})?")


@dataclass(frozen=True)
class Trap:
    """A family of surprising scalars: its ``pattern``, what is surprising, and what to write instead."""

    pattern: re.Pattern[str]
    surprise: str
    instead: Callable[[str], str]


def _boolean(text: str) -> str:
    return f'write {"true" if text.lower() in ("y", "yes", "on") else "false"}, or quote it: "{text}"'


def _decimal(text: str) -> str:
    number = Decimal(text)
    if not -9 <= number.adjusted() <= MAX_DIGITS:
        mantissa, exponent = f"{number:e}".split("e")
        mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
        return f"write {mantissa}e{exponent}"
    return f"write {number.normalize():f}"


def _in_base(text: str) -> str:
    digits = text.lstrip("+-").replace("_", "")
    try:
        return f"write the decimal number: {int(digits, 0 if digits[1].isalpha() else 8)}"
    except ValueError:
        return f"write {digits.lstrip('0') or '0'} without leading zeros"


def _quote(text: str) -> str:
    return f'quote it if it is text: "{text}"'


def _trap(pattern: str, surprise: str, instead: Callable[[str], str]) -> Trap:
    return Trap(re.compile(pattern, re.IGNORECASE), surprise, instead)


TRAPS: tuple[Trap, ...] = (
    _trap(r"y|yes|n|no|on|off", "is a boolean in YAML 1.1 and text in YAML 1.2", _boolean),
    _trap(r"[-+]?(\d+(\.\d*)?|\.\d+)e[-+]?\d{1,3}", "is text in YAML 1.1 (PyYAML) and a number in YAML 1.2", _decimal),
    _trap(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?", "is a base-60 number in YAML 1.1 and text in YAML 1.2", _quote),
    _trap(
        r"[-+]?0(o[0-7]+|x[\da-f_]+|b[01_]+|[\d_]+)",
        "is an octal, hexadecimal or binary number to some readers",
        _in_base,
    ),
    _trap(
        r"(?=[^_]*_)[-+]?\d[\d_]*(\.[\d_]*)?",
        "is a number in YAML 1.1 and text in YAML 1.2",
        lambda text: f"write {text.replace('_', '')}",
    ),
    _trap(r"\d{4}-\d{1,2}-\d{1,2}([tT \t].*)?", "is a date in YAML 1.1 and text in YAML 1.2", _quote),
    _trap(r"[-+]?\.(inf|nan)", "is not a finite number", lambda text: "write a finite number"),
    _trap(
        rf"[-+]?\d{{{MAX_DIGITS + 1},}}",
        "is too large for an integer",
        lambda text: f"write at most {MAX_DIGITS} digits",
    ),
)


def trap_of(text: str) -> Trap | None:
    """The trap that a plain scalar falls into, if any."""
    if _FLOAT.fullmatch(text):
        return None
    return next((trap for trap in TRAPS if trap.pattern.fullmatch(text)), None)


def plain_value(text: str) -> Any:
    """The value of a plain scalar that is no trap: None, bool, int, float or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
