"""`kvc plan`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kvc.cli.options import DeviceOption, device_bytes
from kvc.diagnostics import fail
from kvc.plan import make_plan
from kvc.plan.fit import answer, parse_question
from kvc.plan.types import Plan
from kvc.report.json_text import json_text
from kvc.report.memory_bar import style_for
from kvc.report.plan_table import plan_table
from kvc.specs import load_spec
from kvc.specs.resolved import ResolvedSpec


@dataclass(frozen=True)
class _Planned:
    spec: ResolvedSpec
    plan: Plan


def plan(
    specs: Annotated[list[str], typer.Argument(metavar="SPEC", help="a file, or a name of the library")],
    device: DeviceOption = None,
    tp: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="tensor parallel ranks, in place of the spec's")
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(metavar="QUESTION", help="tokens=1M, sequences=64@32k or device=139GiB (k = 1,000; Ki = 1,024)"),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="several specs side by side")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="show the formula and the spec line of every number")
    ] = False,
    optimise: Annotated[bool, typer.Option("--optimise", help="choose page sizes and padding by stated costs")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="draw it too: .png, .svg or .pdf (needs `kvc[plot]`)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the answer as JSON")] = False,
) -> None:
    """Show where every byte of a spec's cache goes, and how many tokens fit."""
    given = _fit_device(fit) or device
    planned = [_planned(spec, tp, given) for spec in specs]
    if plot is not None:
        _plot(planned, plot)
    if compare or (plot is not None and len(planned) > 1):
        _compare(planned, as_json)
    elif len(planned) > 1:
        raise typer.BadParameter("give one SPEC, or `--compare` to see several side by side")
    elif fit is not None:
        _fit(planned[0], fit, as_json)
    elif explain:
        _explain(planned[0], as_json)
    elif optimise:
        _optimise(planned[0], as_json)
    else:
        print(json_text(planned[0].plan.to_json()) if as_json else plan_table(planned[0].plan, style_for(sys.stdout)))


def _fit_device(fit: str | None) -> str | None:
    """A question about a device gives its size."""
    kind, _, size = (fit or "").partition("=")
    return size if kind == "device" else None


def _planned(name: str, tp: int | None, device: str | None) -> _Planned:
    spec = load_spec(name, tp) if tp else load_spec(name)
    return _Planned(spec, make_plan(spec, device_bytes(device)))


def _plot(planned: list[_Planned], path: Path) -> None:
    from kvc.report.plot import write_plot
    from kvc.report.plot_data import Subject

    write_plot([Subject(one.plan, one.spec.target.max_seq_len) for one in planned], path)
    print(f"wrote {path}", file=sys.stderr)  # stdout is for the answer


def _compare(planned: list[_Planned], as_json: bool) -> None:
    from kvc.plan.compare import compare
    from kvc.report.plan_answers import compare_table

    if len(planned) < 2:
        raise fail("KVC207", "`--compare` shows several specs side by side", help="name two or more")
    plans = [one.plan for one in planned]
    rows = compare(plans)
    names = [plan.name for plan in plans]
    data = {"plans": names, "figures": [row.to_json() for row in rows]}
    print(json_text(data) if as_json else compare_table(plans, rows))


def _fit(planned: _Planned, text: str, as_json: bool) -> None:
    from kvc.report.plan_answers import fit_table

    longest = planned.spec.target.max_seq_len
    found = answer(planned.plan, parse_question(text, longest), longest)
    print(json_text(found.to_json()) if as_json else fit_table(found))


def _explain(planned: _Planned, as_json: bool) -> None:
    from kvc.plan.explain import explain
    from kvc.report.plan_answers import explain_table

    rows = explain(planned.spec, planned.plan)
    print(json_text({"formulas": [vars(row) for row in rows]}) if as_json else explain_table(rows))


def _optimise(planned: _Planned, as_json: bool) -> None:
    from kvc.plan.optimise import Costs, optimise
    from kvc.report.plan_answers import optimise_table

    costs = Costs(planned.spec.target.max_seq_len)
    choices = optimise(planned.spec, costs)
    data = {
        "costs": vars(costs),
        "choices": [choice.to_json() for choice in choices],
        "why": choices[0].reason(choices),
    }
    print(json_text(data) if as_json else optimise_table(choices, costs))
