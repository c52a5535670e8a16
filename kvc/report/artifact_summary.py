"""What an artifact holds, for people."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvc.artifact import Artifact
from kvc.diagnostics import fail
from kvc.graphs.program import Constant, Region, signature_of
from kvc.report.plan_table import layer_ranges, plan_table
from kvc.report.table import table


def artifact_summary(artifact: Artifact, path: Path) -> str:
    """Title, passes, graphs, constants, workspace, capture plan and the memory plan; without a final newline."""
    made_of = (_passes, _graphs, _constants, _workspace, _capture)
    blocks = (_title(artifact, path), *(block(artifact) for block in made_of))
    return "\n\n".join([*filter(None, blocks), plan_table(artifact.plan)])


def graph_text(artifact: Artifact, name: str) -> str:
    """The canonical text of one graph, or of `all`. Raises KVC406 for a name that is none, with the nearest."""
    texts = artifact.graph_texts()
    if name == "all":
        return "\n".join(texts.values()).rstrip()
    if name not in texts:
        near = difflib.get_close_matches(name, texts, 1)
        known = f"did you mean {near[0]}?" if near else f"graphs: {', '.join(texts)}, or all"
        raise fail("KVC406", f"the artifact has no graph {name!r}", help=known)
    return texts[name].rstrip()


def _title(artifact: Artifact, path: Path) -> str:
    program, manifest = artifact.program, artifact.manifest()
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    target = f"{program.device} {program.arch}" if program.arch else program.device
    return (
        f"{path}: {program.name}, {len(program.bindings)} layers, activations {program.dtype}, for {target}\n"
        f"compiled from {artifact.spec['file']} by {versions}; digest {manifest['digest'][:12]}"
    )


def _passes(artifact: Artifact) -> str:
    rows = [
        (p["pass"], p["fired"], f"{p['nodes'][0]} -> {p['nodes'][1]}", len(p["misses"]), p["detail"])
        for p in artifact.passes
    ]
    return table(("pass", "fired", "nodes", "missed", "detail"), rows)


def _graphs(artifact: Artifact) -> str:
    layers: dict[str, list[int]] = {}
    for binding in artifact.program.bindings:
        layers.setdefault(binding.signature, []).append(binding.layer)
    rows = [
        (name, _layers(layers.get(signature_of(name))), len(graph.calls), _takes(graph))
        for name, graph in artifact.program.named_graphs().items()
    ]
    return table(("graph", "layers", "calls", "takes"), rows)


_LAYER = re.compile(r"(?<=layers\.)\d+|(?<=^weight\.)\d+|(?<=^scale\.)\d+")  # its number in a name


def _layers(layers: list[int] | None) -> str:
    return "all" if layers is None else layer_ranges(layers)


_CALLERS = {"input": "", "staging": "staging of "}  # roles of what the caller brings, and how they are shown


def _takes(graph: Any) -> str:
    inputs = [node for node in graph.placeholders if node.meta["role"] in _CALLERS]
    types = (" or ".join((graph.symbols.type_text(n.meta["val"]), *n.meta.get("accepts", ()))) for n in inputs)
    named = ((f"{_CALLERS[node.meta['role']]}{node.target} {text}") for node, text in zip(inputs, types, strict=True))
    return ", ".join(named) or "step buffer"


def _constants(artifact: Artifact) -> str:
    """A row a constant, one for all layers where each layer takes its own from a checkpoint."""
    counted = Counter(_constant(name, constant) for name, constant in artifact.program.constants.items())
    rows = [(name, str(count), kind, made) for (name, kind, made), count in counted.items()]
    return table(("constant", "number", "kind", "made from"), rows) if rows else ""


def _constant(name: str, constant: Constant) -> tuple[str, str, str]:
    made = _params(constant.params)
    if {"tensor", "tensors"} & constant.params.keys():
        name, made = _LAYER.sub("*", name), _LAYER.sub("*", made)
    return name, constant.kind, made


def _params(params: dict[str, Any]) -> str:
    flat = params | params.get("rope", {})
    shown = {key: " or ".join(value) if isinstance(value, list) else value for key, value in flat.items()}
    return ", ".join(
        f"{key} {value}" for key, value in shown.items() if not isinstance(value, dict) and key != "sha256"
    )


def _workspace(artifact: Artifact) -> str:
    workspace = artifact.program.workspace
    by_graph: dict[str, list[Region]] = {}
    for region in workspace.regions:
        by_graph.setdefault(region.graph, []).append(region)
    rows = [(name, len(found), f"{max(r.end for r in found):,}") for name, found in by_graph.items()]
    return f"workspace {workspace.bytes:,} bytes\n{table(('graph', 'values', 'bytes'), rows)}" if rows else ""


def _capture(artifact: Artifact) -> str:
    plan = artifact.program.capture
    if plan is None:
        return "capture: none; `kvc compile --explain` says why"
    rows = [(region.callable, region.phase, *_rules(region.inputs.values())) for region in plan.regions]
    captured = f"captured for {', '.join(map(str, plan.buckets))} sequences"
    return f"{captured}\n{table(('callable', 'phase', 'static', 'copied', 'derived'), rows)}"


def _rules(rules: Iterable[str]) -> tuple[int, int, int]:
    found = list(rules)
    return found.count("static"), found.count("copied"), found.count("derived")
