"""What must hold between graphs, bindings and capture plan of a program. A rule yields (graph, what is wrong)."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from kvc.compiler_passes.liveness import limits, live_values
from kvc.compiler_passes.retain_rules import twins_are_read_as_retained
from kvc.compiler_passes.scale_rules import phase_conflicts
from kvc.compiler_passes.stages import CONSTANT_KINDS, REFRESH_RULES
from kvc.compiler_passes.table_rules import tables_are_of_the_pools
from kvc.graphs.graph import Graph, qualified_name
from kvc.graphs.program import PHASES, Binding, CaptureRegion, Phase, Program, Region

Found = Iterator[tuple[str, str]]
_POOL = "pool"
_SELECTED = "selected"
_BOUND = {**CONSTANT_KINDS, "pool": _POOL, "selected": _SELECTED}  # role of a placeholder -> what a layer binds to it


def prologue_covers_layers(program: Program, before: Program | None) -> Found:
    """Each `prologue.*` placeholder of a layer graph is an output of the phase's prologue, of equal type."""
    for (signature, phase), graph in program.graphs.items():
        made = _output_types(program.prologues.get(phase))
        for node in graph.placeholders:
            if node.meta["role"] != "prologue":
                continue
            wanted, name = graph.symbols.type_text(node.meta["val"]), str(node.target)
            if made.get(name) != wanted:
                has = f"makes {made[name]}" if name in made else "does not make it"
                yield f"{signature}.{phase}", f"takes prologue.{name} as {wanted}; prologue.{phase} {has}"


def _output_types(prologue: Graph | None) -> dict[str, str]:
    if prologue is None:
        return {}
    return {name: prologue.symbols.type_text(node.meta["val"]) for name, node in prologue.outputs.items()}


def sections_exist(program: Program, before: Program | None) -> Found:
    """Each `step.*` placeholder is a section of the phase's packed step buffer, of the same shape."""
    for name, graph in program.named_graphs().items():
        sections = {s.name: tuple(map(str, s.dims)) for s in program.step.get(name.rpartition(".")[2], ())}  # type: ignore[call-overload]
        for node in graph.placeholders:
            dims = tuple(graph.symbols.size_text(size) for size in node.meta["val"].shape)
            if node.meta["role"] == "step" and sections.get(str(node.target)) != dims:
                yield name, f"step.{node.target} [{', '.join(dims)}] is no section of the step buffer"


def graphs_are_complete(program: Program, before: Program | None) -> Found:
    """Every signature has its graphs for both phases."""
    names = [name for signature in program.signatures for name in program.callables(signature)]
    for name in names:
        for phase in PHASES:
            if (name, phase) not in program.graphs:
                yield f"{name}.{phase}", "there is no graph for this phase"


def bindings_are_complete(program: Program, before: Program | None) -> Found:
    """Every layer is bound once, to a signature that exists, with a buffer for every pool and a constant for the rest.

    Bindings that ``before`` had, for graphs that take the same, are not looked at again: there may be
    thousands.
    """
    needed = _needed_bindings(program)
    if before is not None and _same_bindings(program, before) and needed == _needed_bindings(before):
        return
    yield from _layers_bound_once(program)
    for binding in program.bindings:
        wanted = needed.get(binding.signature)
        if wanted is None:
            yield "bindings", f"layer {binding.layer}: there is no signature {binding.signature}"
        else:
            yield from _unbound(program, binding, wanted)


def _same_bindings(program: Program, before: Program) -> bool:
    return program.bindings is before.bindings and program.constants is before.constants


def _layers_bound_once(program: Program) -> Found:
    layers = Counter(binding.layer for binding in program.bindings)
    for layer, count in layers.items():
        if count > 1:
            yield "bindings", f"layer {layer} is bound {count} times"
    missing = sorted(set(range(len(layers))) - set(layers))
    if missing:
        yield "bindings", f"layer {missing[0]} is not bound"


def _needed_bindings(program: Program) -> dict[str, dict[str, str]]:
    return {signature: _bound_of(program, signature) for signature in program.signatures}


def _bound_of(program: Program, signature: str) -> dict[str, str]:
    """Placeholder -> what is bound to it, a kind of constant or a pool, over all of its graphs."""
    graphs = program.graphs_of(signature)
    nodes = (node for graph in graphs.values() for node in graph.placeholders if node.meta["role"] in _BOUND)
    return {qualified_name(node): _BOUND[node.meta["role"]] for node in nodes}


def _unbound(program: Program, binding: Binding, wanted: dict[str, str]) -> Found:
    layer, bound = binding.layer, binding.constants
    for placeholder, kind in wanted.items():
        if kind == _POOL:
            if placeholder.removeprefix("pool.") not in binding.pools:
                yield "bindings", f"layer {layer}: {placeholder} has no buffer"
            continue
        if kind == _SELECTED:
            yield from _not_selected(program, binding)
            continue
        constant = program.constants.get(bound.get(placeholder, ""))
        if constant is None:
            yield "bindings", f"layer {layer}: {placeholder} has no constant"
        elif constant.kind != kind:
            yield "bindings", f"layer {layer}: {placeholder} is bound to a {constant.kind}, not a {kind}"


def _not_selected(program: Program, binding: Binding) -> Found:
    """Why what a layer takes as the rows of an earlier one are none."""
    layer, source = binding.layer, binding.selected_from
    owners = [one.signature for one in program.bindings if one.layer == source and one.layer < layer]
    if not owners:
        yield "bindings", f"layer {layer}: selected.rows is taken from layer {source}, which is no earlier layer"
    for phase in PHASES if owners else ():
        wanted = _selected_type(program, binding.signature, phase, taken=True)
        made = _selected_type(program, owners[0], phase, taken=False)
        if wanted != made:
            has = f"makes {made} in the {phase} phase"
            yield "bindings", f"layer {layer}: selected.rows is {wanted}; layer {source} {has}"


def _selected_type(program: Program, signature: str, phase: Phase, *, taken: bool) -> str:
    """The type of the chosen rows that a graph takes, or of those that it makes; a missing graph is another rule's."""
    graph = program.graphs.get((signature, phase))
    if graph is None:
        return "nothing"
    placeholder = next((node for node in graph.placeholders if node.meta["role"] == "selected"), None)
    found = placeholder if taken else graph.outputs.get("selected")
    return graph.symbols.type_text(found.meta["val"]) if found else "nothing"


def capture_covers_inputs(program: Program, before: Program | None) -> Found:
    """A capture plan has every generation callable, and the right refresh rule for each of its inputs."""
    if program.capture is None:
        return
    regions = {region.callable: region for region in program.capture.regions}
    for name, graph in program.named_graphs().items():
        if name.endswith(".generation"):
            yield from _refreshed(name, graph, regions.get(name))
    if program.capture.buckets != program.buckets:
        yield "capture", f"buckets {program.capture.buckets} are not those of the target, {program.buckets}"


def _refreshed(name: str, graph: Graph, region: CaptureRegion | None) -> Found:
    planned: dict[str, Any] = dict(region.inputs) if region else {}
    for node in graph.placeholders:
        rule = planned.get(qualified_name(node))
        if rule is None or rule != REFRESH_RULES.get(node.meta["role"]):
            yield name, f"{qualified_name(node)} is {rule or 'not refreshed'} in the capture plan"


def workspace_is_disjoint(program: Program, before: Program | None) -> Found:
    """Values that live at the same time have different places in the workspace, which holds all of them."""
    placed = {(region.graph, region.value): region for region in program.workspace.regions}
    end = program.workspace.bytes
    for name, graph in program.named_graphs().items() if placed else ():
        values = live_values(graph, limits(program))
        for value in values:
            region = placed.get((name, value.value))
            if region is None or region.bytes < value.bytes or not 0 <= region.offset <= region.end <= end:
                yield name, f"{value.value} has no place of {value.bytes} bytes in the workspace"
        for one, other in combinations(values, 2):
            if one.meets(other) and _overlap(placed.get((name, one.value)), placed.get((name, other.value))):
                yield name, f"{one.value} and {other.value} live at the same time and share bytes of the workspace"


def _overlap(one: Region | None, other: Region | None) -> bool:
    return one is not None and other is not None and one.offset < other.end and other.offset < one.end


def one_storage_in_all_phases(program: Program, before: Program | None) -> Found:
    """What one phase writes is what the other reads: encoding, page size and scale of every field."""
    return phase_conflicts(program)


PROGRAM_RULES: tuple[tuple[str, Callable[[Program, Program | None], Found]], ...] = (
    ("KVC328", one_storage_in_all_phases),
    ("KVC329", prologue_covers_layers),
    ("KVC329", sections_exist),
    ("KVC330", graphs_are_complete),
    ("KVC330", bindings_are_complete),
    ("KVC332", capture_covers_inputs),
    ("KVC333", tables_are_of_the_pools),
    ("KVC334", workspace_is_disjoint),
    ("KVC335", twins_are_read_as_retained),
)
