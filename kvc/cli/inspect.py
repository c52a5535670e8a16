"""`kvc inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from kvc.report.json_text import json_text


def inspect(
    artifact: Annotated[Path, typer.Argument(metavar="DIR", help="an artifact")],
    graph: Annotated[str | None, typer.Option(metavar="NAME|all", help="print the text of a graph")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the manifest")] = False,
) -> None:
    """Show what an artifact holds: versions, passes, graphs, layers, constants, memory.

    Every file is verified against its digest first.
    """
    if as_json and graph is not None:
        raise typer.BadParameter("--json prints the manifest and --graph a graph: give one of them")
    from kvc.artifact import read_artifact
    from kvc.report.artifact_summary import artifact_summary, graph_text

    read = read_artifact(artifact)
    if as_json:
        print(json_text(read.manifest()))
    else:
        print(graph_text(read, graph) if graph is not None else artifact_summary(read, artifact))
