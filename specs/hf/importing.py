"""From a `config.json` to the text of a spec."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvc.capabilities import STORAGE_CAPABILITIES
from kvc.diagnostics import Diagnostic, KvcError, Source
from kvc.encodings import ENCODINGS, MIXED
from kvc.specs.hf import document
from kvc.specs.hf.config import Config, Derived
from kvc.specs.hf.dtypes import activation_dtype
from kvc.specs.hf.families import FAMILIES
from kvc.specs.hf.families.family import Family
from kvc.specs.hf.families.ignored import MTP_IGNORES
from kvc.specs.hf.model import located
from kvc.specs.hf.reader import read_config
from kvc.specs.loading import load_spec_text

_PLANNED_LENGTH = 32_768  # tokens of a sequence that are served where the user does not say
_RETAIN = {"first": 64, "last": 256}


@dataclass(frozen=True)
class ImportOptions:
    """What a config does not say; ``ignore`` are fields to be taken as if they were not there."""

    encoding: str | None = None
    tensor: int | None = None
    max_seq_len: int | None = None
    name: str | None = None
    ignore: tuple[str, ...] = ()


def spec_from_config(path: str | Path, options: ImportOptions | None = None) -> str:
    """The YAML of a spec for the model of a `config.json`, checked. Raises KvcError with every finding."""
    chosen = options or ImportOptions()
    config, family = located(read_config(path), chosen.ignore)
    layers = config.derive(family.layers)
    text = "\n".join(_Document(config, family, layers, chosen).lines()) + "\n"
    _check(text, config.raw.path)
    return text


def _check(text: str, path: str) -> None:
    """Raise what the checks of specs find: the config's values, or the options, do not fit together."""
    try:
        load_spec_text(text, path)
    except KvcError as error:
        raise KvcError(
            Diagnostic(found.code, f"in the spec of this config: {found.message}", Source(path), found.path, found.help)
            for found in error.diagnostics
        ) from None


def _spec_name(path: str, model_type: str) -> str:
    """The file's own name, or its folder's where all are called config.json, as a spec may be called."""
    file = Path(path)
    words = [file.stem if file.stem != "config" else file.absolute().parent.name, model_type, "model"]
    names = (re.sub(r"[^a-z0-9._-]+", "-", word.lower()).strip("-._")[:100] for word in words)
    return next(name for name in names if name)


@dataclass(frozen=True)
class _Document:
    """The parts of a spec's text."""

    config: Config
    family: Family
    layers: Derived
    options: ImportOptions

    def lines(self) -> Iterator[str]:
        yield "# yaml-language-server: $schema=kvc.schema.json"
        yield from document.comment(f"Made by `kvc init` from {Path(self.config.raw.path).name}: {self._model()}.")
        yield "kvc: 1"
        yield f"name: {self.options.name or _spec_name(self.config.raw.path, self._type())}"
        yield from self._architecture()
        yield from self._cache()
        yield from self._target()

    def _type(self) -> str:
        return str(self.config.values.get("model_type", ""))

    def _model(self) -> str:
        known = next((name for name, family in FAMILIES.items() if family is self.family), "")
        where = f" in {'.'.join(self.config.where)}" if self.config.where else ""
        ignored = f", --ignore-field {' '.join(self.options.ignore)}" if self.options.ignore else ""
        return f"model_type {self._type() or known}{where}{ignored}"

    def _architecture(self) -> Iterator[str]:
        dtype = self.config.derive(self._dtype)
        positions = self.config.derive(Config.need, self.family.positions)
        yield "model:"
        yield from document.about(dtype, 2)
        yield f"  dtype: {dtype.value}"
        yield from document.about(positions, 2)
        yield f"  max_position: {positions.value}"
        yield from self._order()
        yield "  layers:"
        yield from document.layers(self.layers.value, 4)

    def _order(self) -> list[str]:
        """What the order of layers follows from: fields that no layer alone was made of."""
        within = {name for layer in self.layers.value for name in layer.fields}
        within |= {note for layer in self.layers.value for note in layer.notes}
        fields = tuple(name for name in self.layers.fields if name not in within or name == "num_hidden_layers")
        notes = tuple(note for note in self.layers.notes if note not in within)
        return document.about(Derived(None, fields, notes), 2)

    def _encoding(self) -> str:
        return self.options.encoding or self.family.encoding

    def _dtype(self, config: Config) -> str:
        """The activation dtype; bf16 for fp16 where the encoding would silently take bits from it."""
        dtype, encoding = activation_dtype(config), MIXED.get(self._encoding(), (self._encoding(),))[0]
        rows = [row for row in STORAGE_CAPABILITIES if row.encoding == encoding]
        if dtype == "fp16" and not any(dtype in row.dtypes for row in rows):
            config.note(
                f"float16 in the config: a {encoding} cache takes bf16 activations; fp16 needs fp32, fp8 or nvfp4"
            )
            return "bf16"
        return dtype

    def _cache(self) -> Iterator[str]:
        encoding = self._encoding()
        yield from document.comment("Not from the config: how the history is stored.")
        yield "cache:"
        yield f"  encoding: {encoding}"
        yield f"  tokens_per_page: {self.family.tokens_per_page}"
        history, twin = MIXED.get(encoding, (encoding, ""))
        if history in ENCODINGS and ENCODINGS[history].scale != "none":
            yield from document.comment("1.0 for planning: write the scales that were calibrated before serving", 2)
            yield "  scales: {source: unit}"
        if twin:
            scaled = ENCODINGS[twin].scale != "none"
            yield f"  retain: {document.flow({**_RETAIN, **({'scales': {'source': 'unit'}} if scaled else {})})}"
        yield from self._drafts()
        yield from self._quantized()

    def _drafts(self) -> Iterator[str]:
        """Layers for multi-token prediction, which the user may add."""
        for name in MTP_IGNORES:
            count = self.config.values.get(name)
            if type(count) is int and count > 0 and "layers" in name:
                draft = {"kind": "mtp", "layers": count, "max_draft_tokens": count, "encoding": self._encoding()}
                yield f"# {name} is {count}: layers for multi-token prediction, planned where the spec has"
                yield f"# draft: {document.flow(draft)}"
                return

    def _quantized(self) -> Iterator[str]:
        given = self.config.raw.values.get("quantization_config") or self.config.values.get("quantization_config")
        if not isinstance(given, dict):
            return
        caches = [name for name in ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_dtype") if given.get(name)]
        if caches:
            yield from document.comment(
                f"quantization_config.{caches[0]} says that the checkpoint has scales for a cache"
            )
        else:
            yield from document.comment("quantization_config is about weights: the cache does not follow from it")

    def _target(self) -> Iterator[str]:
        if self.options.tensor is not None:
            yield f"parallel: {document.flow({'tensor': self.options.tensor})}"
        longest: Any = self.config.need(self.family.positions)
        length = self.options.max_seq_len or min(longest, _PLANNED_LENGTH)
        yield from document.comment("Not from the config: what is served.")
        yield "target:"
        target = {"device": "cuda", "arch": "sm_90", "max_sequences": 128, "max_seq_len": length, "max_tokens": 8192}
        yield from document.fields(target, 2)
