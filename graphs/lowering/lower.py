"""Spec and plan -> Program."""

from collections.abc import Callable

from kvc.graphs.graph import Graph
from kvc.graphs.lowering.constants import Constants
from kvc.graphs.lowering.gqa import lower_gqa
from kvc.graphs.lowering.mla import lower_mla
from kvc.graphs.lowering.mla_sparse import lower_mla_sparse
from kvc.graphs.lowering.signature import Signature, make_signature
from kvc.graphs.lowering.staged import STAGED_PARTS
from kvc.graphs.lowering.step import step_sections
from kvc.graphs.program import PHASES, Binding, Phase, Program
from kvc.plan.types import Buffer, Plan
from kvc.specs.resolved import MlaShape, ResolvedSpec

LowerGraph = Callable[[str, Signature, Phase], Graph]

LAYER_KINDS: dict[str, LowerGraph] = {"gqa": lower_gqa, "mla": lower_mla, "mla_sparse": lower_mla_sparse}


def lower(spec: ResolvedSpec, plan: Plan) -> Program:
    """Lower every distinct layer once a phase and bind all layers; cost grows with signatures, not with depth."""
    buffers = _buffers_of_layers(plan)
    found = [make_signature(spec, plan, run, buffers[run.first]) for run in spec.runs]
    signatures = _name_signatures(found)
    constants = Constants(spec.target.max_seq_len, spec.tensor_parallel)
    names = {signature.key: name for name, signature in signatures.items()}
    bindings: list[Binding] = []
    selects: int | None = None  # the nearest layer with an indexer of its own
    for run, signature in zip(spec.runs, found, strict=True):
        name = names[signature.key]
        for offset, layer in enumerate(run.layers):
            pools = {role: (buffer.pool, buffer.index) for role, buffer in buffers[layer].items()}
            indexer = run.shape.indexer if isinstance(run.shape, MlaShape) else None
            selects = layer if indexer and not indexer.shared else selects
            selected_from = selects if indexer and indexer.shared else None
            bindings.append(Binding(layer, name, pools, constants.of_layer(run, offset), selected_from))
    return Program(
        name=spec.name,
        dtype=spec.dtype,
        device=spec.target.device,
        arch=spec.target.arch,
        graphs={
            (key, phase): lower_graph(f"{key}.{phase}", signature, phase)
            for name, signature in signatures.items()
            for key, lower_graph in _graphs_of(name, signature).items()
            for phase in PHASES
        },
        prologues={},
        bindings=tuple(bindings),
        constants=constants.made,
        signatures={name: signature.describe() for name, signature in signatures.items()},
        step={phase: step_sections(len(plan.lifecycles), spec.draft is not None) for phase in PHASES},
        table_width=max(-(-spec.target.max_seq_len // run.tokens_per_page) for run in spec.runs),
        buckets=spec.target.buckets,
        max_tokens=spec.target.max_tokens,
    )


def _graphs_of(name: str, signature: Signature) -> dict[str, LowerGraph]:
    """Key of a graph -> what lowers it: the layer, or the parts of one whose attention the engine computes."""
    if signature.run.kernel == "engine":
        return {f"{name}.{part}": lower_part for part, lower_part in STAGED_PARTS.items()}
    return {name: LAYER_KINDS[signature.run.shape.kind]}


def _buffers_of_layers(plan: Plan) -> dict[int, dict[str, Buffer]]:
    """Layer -> what it keeps (`history`, `twin`) -> the buffer."""
    found: dict[int, dict[str, Buffer]] = {}
    for buffer in plan.buffers:
        found.setdefault(buffer.layer, {})[buffer.role] = buffer
    return found


def _name_signatures(found: list[Signature]) -> dict[str, Signature]:
    """Name the distinct signatures `gqa0`, `gqa1`, ... in the order of the layers."""
    distinct = {signature.key: signature for signature in reversed(found)}
    ordered = sorted(distinct.values(), key=lambda signature: signature.run.first)
    return {f"{signature.run.shape.kind}{index}": signature for index, signature in enumerate(ordered)}
