"""`kvc sweep`."""

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvc.cli.progress import bar, spinner
from kvc.diagnostics import fail

if TYPE_CHECKING:
    from kvc.report.sweep_results import ResultFiles
    from kvc.sweep.configurations import Configuration, Limits
    from kvc.sweep.running import Sweep


class SweepFormat(StrEnum):
    """How the table is printed."""

    text = "text"
    json = "json"


class Unit(StrEnum):
    """What is read from a twin."""

    token = "token"
    page = "page"


class Device(StrEnum):
    """Where the model and its caches are."""

    cpu = "cpu"
    cuda = "cuda"


def sweep(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="a spec file or a name of the library, for its layers")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="where results go, and are gone on from")],
    model: Annotated[str, typer.Option(help="smollm2-135m (fetched once) or a model folder")] = "smollm2-135m",
    text: Annotated[Path | None, typer.Option(help="a UTF-8 text [default: a help text of Python]")] = None,
    tokens: Annotated[int, typer.Option(min=1, help="tokens of the text to give")] = 2048,
    encodings: Annotated[str | None, typer.Option(help="of the history [default: all of the layers]")] = None,
    retain: Annotated[str, typer.Option(help="encodings of the twin; '' for none")] = "bf16",
    first: Annotated[str, typer.Option(help="first tokens kept in the twin")] = "0,16,64",
    last: Annotated[str, typer.Option(help="last tokens kept in the twin")] = "0,64,256",
    unit: Annotated[Unit, typer.Option(help="what is read from the twin, in whole pages or not")] = Unit.token,
    chunk: Annotated[int, typer.Option(min=1, help="tokens of a step; 1: generation steps")] = 1,
    together: Annotated[int, typer.Option(min=1, help="configurations that run side by side")] = 4,
    device: Annotated[Device | None, typer.Option(help="in place of the spec's")] = None,
    output_format: Annotated[SweepFormat, typer.Option(help="of the table")] = SweepFormat.text,
) -> None:
    """Measure how far caches of many encodings are from an fp32 one, on one text with a real model."""
    from kvc.integrations.transformers import require_transformers

    require_transformers()
    from kvc.report.sweep_results import ResultFiles
    from kvc.specs import load_spec

    given = load_spec(spec)
    found = _grid(given, encodings, retain, (first, last), unit)
    _check_length(tokens, given.target.max_seq_len)
    files = ResultFiles(out)
    with spinner() as say:
        limits = _limits(tokens, min(chunk, tokens), device or Device(given.target.device))
        loaded, setting = _load(given, model, text, limits, say)
        say(f"compiling {len(found)} configurations of {given.name}")
        made = _compiled(given, found, setting, limits)
    _run(made, loaded, files, together)
    drawn = _draw(made, files, out)
    _report(made, files, output_format, drawn)


def _grid(spec: Any, encodings: str | None, retain: str, windows: tuple[str, str], unit: str) -> "list[Configuration]":
    from kvc.sweep.configurations import grid, histories, histories_of

    names = histories_of(spec) if encodings is None else _names("--encodings", encodings, histories())
    twins = _names("--retain", retain, histories())
    first, last = (_numbers(name, text) for name, text in zip(("--first", "--last"), windows, strict=True))
    return grid(names, twins, first, last, "page" if unit == "page" else "token")


def _names(option: str, text: str, known: Sequence[str]) -> list[str]:
    from kvc.specs.suggestions import nearest, shortened

    names = list(dict.fromkeys(part for part in (one.strip() for one in text.split(",")) if part))
    for name in names:
        if name not in known:
            raise fail("KVC621", f"{option}: unknown encoding `{shortened(name)}`", help=nearest(name, known))
    return names


def _numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) <= 2**30 for part in parts):
        from kvc.specs.suggestions import shortened

        message = f"{option}: `{shortened(text)}` is not a list of whole numbers"
        raise fail("KVC621", message, help="give numbers from 0 with commas between them, such as 0,64,256")
    return list(map(int, parts))


def _check_length(tokens: int, limit: int) -> None:
    if tokens > limit:
        message = f"a text of {tokens:,} tokens is over the spec's target.max_seq_len {limit:,}"
        raise fail("KVC608", message, help="lower --tokens, or raise max_seq_len in the spec")


def _limits(tokens: int, chunk: int, device: Device) -> "Limits":
    from kvc.sweep.configurations import Limits

    if device is Device.cpu:
        return Limits(tokens, chunk, "cpu")
    import torch

    if not torch.cuda.is_available():
        raise fail("KVC508", "there is no CUDA device here", help="run on the CPU: --device cpu")
    return Limits(tokens, chunk, "cuda", "sm_{}{}".format(*torch.cuda.get_device_capability()))


def _load(spec: Any, name: str, path: Path | None, limits: "Limits", say: Callable[[str], None]) -> tuple[Any, Any]:
    """The model, and what all configurations have in common."""
    from kvc.integrations.checkpoints import model_folder
    from kvc.integrations.transformers.loading import convert_gguf, load_model
    from kvc.sweep.rows import Setting, weights_digest
    from kvc.sweep.text import encode

    folder = model_folder(name, convert_gguf, say)
    say(f"loading {folder.name} in {spec.dtype}")
    loaded = load_model(folder, spec.dtype, limits.device)
    text = encode(loaded.tokenizer, path, limits.tokens)
    return loaded.model, Setting(spec.name, folder.name, weights_digest(folder), text, limits.chunk, limits.device)


def _compiled(spec: Any, configurations: "list[Configuration]", setting: Any, limits: "Limits") -> "Sweep":
    from kvc.sweep.running import make_sweep

    made = make_sweep(spec, configurations, setting, limits)
    if not made.candidates:
        reason = f"; {made.refused[0].family}: {made.refused[0].finding.message}" if made.refused else ""
        raise fail("KVC621", f"no configuration can be compiled{reason}", help="give other --encodings")
    return made


def _run(made: "Sweep", model: Any, files: "ResultFiles", together: int) -> None:
    from kvc.sweep.running import run_sweep

    done = len(made.candidates) - len(made.left(files))
    if done:
        print(f"{done} of {len(made.candidates)} configurations are in {files.table} already", file=sys.stderr)
    run_sweep(made, model, files, together, bar)


def _draw(made: "Sweep", files: "ResultFiles", out: Path) -> list[Path]:
    """The two plots; none, and a line that says so, without matplotlib."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        print("no plots: they need matplotlib, pip install 'kvc[plot]'", file=sys.stderr)
        return []
    from kvc.report.sweep_plot import write_position_plot, write_tradeoff_plot

    rows = made.rows(files)
    stretches = {row.label: files.found[row.digest].stretches for row in rows}
    paths = [out / "sweep.png", out / "positions.png"]
    write_tradeoff_plot(rows, paths[0])
    write_position_plot(rows, stretches, paths[1])
    return paths


def _report(made: "Sweep", files: "ResultFiles", output_format: SweepFormat, drawn: list[Path]) -> None:
    from kvc.report.json_text import json_text
    from kvc.report.sweep_table import sweep_json, sweep_table

    skipped = [(one.family, one.configurations, one.finding) for one in made.refused]
    rows = made.rows(files)
    print(json_text(sweep_json(rows, skipped)) if output_format is SweepFormat.json else sweep_table(rows, skipped))
    for path in (files.table, files.positions, *drawn):
        print(f"wrote {path}", file=sys.stderr)
