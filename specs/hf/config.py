"""The fields of one model for its family: checked, and remembered when read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kvc.diagnostics import Diagnostic, KvcError
from kvc.specs.hf.fields import FIELD_TYPES, shown
from kvc.specs.hf.reader import RawConfig


@dataclass(frozen=True)
class Derived:
    """A part of a spec, the fields of the config that it follows from, and what a reader should know of it."""

    value: Any
    fields: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Config:
    """A model's fields, without null ones; ``where`` is the path of the object that holds them.

    ``defaults``: what the family's own class takes for fields that are left out.
    """

    raw: RawConfig
    values: dict[str, Any]
    where: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    _read: dict[str, None] = field(default_factory=dict)
    _notes: dict[str, None] = field(default_factory=dict)

    def get(self, name: str, otherwise: Any = None) -> Any:
        """The value of a field, or the default of its class, or ``otherwise``."""
        if name in self.values:
            self._read[name] = None
            return self.values[name]
        if name in self.defaults:
            self._read[f"{name} ({shown(self.defaults[name])}, the default of its class)"] = None
            return self.defaults[name]
        return otherwise

    def need(self, name: str) -> Any:
        """The value of a field that the layer cannot do without. Raises KvcError (KVC155)."""
        value = self.get(name)
        if value is None:
            raise KvcError(self.missing(name))
        return value

    def has(self, name: str) -> bool:
        """Whether the config gives the field itself."""
        return name in self.values

    def inside(self, name: str) -> "Config":
        """The object in field ``name``, as a config of its own; empty where there is none."""
        nested = {key: value for key, value in self.get(name, {}).items() if value is not None}
        return Config(self.raw, nested, (*self.where, name))

    def note(self, text: str) -> None:
        """Say something about the part that is being derived."""
        self._notes[text] = None

    def derive(self, build: Callable[..., Any], *arguments: Any) -> Derived:
        """``build(config, *arguments)``, with the fields that it read."""
        outer = self._read, self._notes
        self._read, self._notes = {}, {}
        value = build(self, *arguments)
        derived = Derived(value, tuple(self._read), tuple(self._notes))
        self._read, self._notes = ({**outer[0], **self._read}, {**outer[1], **self._notes})
        return derived

    def finding(self, code: str, message: str, name: str, help: str = "") -> Diagnostic:
        """A finding about field ``name``."""
        keys = (*self.where, name)
        return Diagnostic(code, message, self.raw.source(*keys), ".".join(keys), help)

    def missing(self, name: str, help: str = "") -> Diagnostic:
        """The finding of a field that is left out or null."""
        message = f"`{name}` is missing, and the family has no rule for it"
        return self.finding("KVC155", message, name, help or f"add `{name}`, as the model's code has it")

    def contradiction(self, message: str, name: str, help: str) -> KvcError:
        """The exception for fields that do not agree."""
        return KvcError(self.finding("KVC157", message, name, help))

    def wrong_types(self, names: Iterable[str]) -> list[Diagnostic]:
        """Findings of fields among ``names`` whose values cannot be taken."""
        return [
            self.finding("KVC156", f"`{name}` must be {FIELD_TYPES[name].name}, not {shown(self.values[name])}", name)
            for name in names
            if name in self.values and not FIELD_TYPES[name].accepts(self.values[name])
        ]

    def check(self, names: Iterable[str]) -> None:
        """Raise the findings of `wrong_types`, if any."""
        if findings := self.wrong_types(names):
            raise KvcError(findings)
