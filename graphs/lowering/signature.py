"""What makes two layers share a graph, and the constants that differ between them."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from kvc.plan.types import Buffer, Plan
from kvc.specs.resolved import LayerRun, ResolvedSpec, ScaleSource


@dataclass(frozen=True)
class Signature:
    """Everything that changes a layer's graph; equal signatures share one graph a phase.

    ``buffers`` are what a layer keeps, by role (`history`, `twin`), of the first layer. ``lifecycles`` and
    ``pages_per_slot`` are those of every pool of the plan: the page tables of a step are made together;
    ``chunk_tokens`` of a cached prefix are expanded at once where a layer expands its rows. ``corrected``: tokens are
    drafted, so lengths are corrected on the device, in every layer of the program.
    """

    run: LayerRun
    buffers: dict[str, Buffer]
    dtype: str
    lifecycles: tuple[int, ...]
    pages_per_slot: tuple[int, ...]
    chunk_tokens: int
    corrected: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for layers that share graphs: position, spec line and the values of scales do not count."""
        run = self.run
        stored = (run.encoding, run.scales.fields, run.tokens_per_page)
        context = (run.context.dtype, run.context.scales.fields)
        retain = run.retain and (replace(run.retain, scales=ScaleSource("none")), run.retain.scales.fields)
        pools = tuple((role, buffer.pool) for role, buffer in self.buffers.items())
        shared = (run.shape, run.coverage, stored, retain, context, run.domain, run.kernel)
        return (*shared, pools, self.dtype, self.chunk_tokens)

    def describe(self) -> dict[str, Any]:
        """Plain data for the manifest: what the callers of a layer graph must know."""
        run = self.run
        twin = {"retain": self._retained()} if run.retain else {}
        kernel = {"kernel": run.kernel} if run.kernel == "engine" else {}
        return {**twin, **kernel} | {
            "shape": asdict(run.shape),
            "coverage": str(run.coverage),
            "encoding": run.encoding,
            "context": run.context.dtype,
            "tokens_per_page": run.tokens_per_page,
            "page_bytes": self.buffers["history"].page_bytes,
            "domain": run.domain,
            "dtype": self.dtype,
            "source": f"{run.source.path}:{run.source.line}",
        }

    def _retained(self) -> dict[str, Any]:
        """What the twin keeps, without the values of its scales, which are bindings."""
        kept = asdict(self.run.retain) if self.run.retain else {}
        return {name: value for name, value in kept.items() if name != "scales"}


def make_signature(spec: ResolvedSpec, plan: Plan, run: LayerRun, buffers: dict[str, Buffer]) -> Signature:
    """The signature of a run of equal layers, which share their pools; ``buffers`` are those of its first layer."""
    return Signature(
        run,
        buffers,
        spec.dtype,
        tuple(pool.lifecycle for pool in plan.pools),
        tuple(pool.pages_per_slot for pool in plan.pools),
        _chunk_tokens(spec, run),
        spec.draft is not None,
    )


def _chunk_tokens(spec: ResolvedSpec, run: LayerRun) -> int:
    """Cached tokens that are expanded at once: as many as a step may bring itself, in whole pages."""
    pages = -(-min(spec.target.max_tokens, spec.target.max_seq_len) // run.tokens_per_page)
    return pages * run.tokens_per_page
