"""A cache in use: pools, constants and the manager, and one step at a time through the compiled graphs."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import torch

from kvc.compat import storage_id
from kvc.diagnostics import fail
from kvc.graphs.program import Phase, Program
from kvc.ops.axes import ACTIVATION_DTYPES
from kvc.plan.types import Plan
from kvc.runtime.accepted import accepted_counts, generating
from kvc.runtime.batch import Part, Request, Step, StepShaper, next_bucket, padding_step
from kvc.runtime.cache_manager import CacheManager, Limits
from kvc.runtime.cached_sequences import CachedSequences
from kvc.runtime.constants import make_constants
from kvc.runtime.executor import Executor
from kvc.runtime.layer_inputs import LayerInputs, padded_rows
from kvc.runtime.out_of_pages import SequenceId
from kvc.runtime.pools import PoolMemory
from kvc.runtime.selections import Selections
from kvc.runtime.staging import StagedLayers
from kvc.runtime.step_buffer import StepBuffer
from kvc.runtime.weights import Checkpoint, Weights
from kvc.specs.resolved import Domain

Tensors = dict[str, torch.Tensor]


class Cache(CachedSequences):
    """The paged KV cache of one model.

    A step: ``begin`` (pages, one copy to the device, prologue), ``layer(i, q, k, v)`` for each attention layer,
    ``commit``, or ``advance`` where only the device knows what was accepted, and ``settle`` once the host does. Rows of
    q, k, v are the requests' tokens in order, context requests first. ``num_slots``: one entry a pool group.
    ``accepted``: int32, where a sampler leaves the accepted tokens of each sequence of a step that will be advanced, in
    the order of its requests.
    """

    def __init__(
        self,
        plan: Plan,
        program: Program,
        limits: Limits,
        num_slots: Sequence[int],
        device: str | torch.device = "cpu",
        fill: int = 0,
        weights: Weights | None = None,
        rank: int = 0,
    ) -> None:
        self.plan, self.program, self.limits, self.num_slots = plan, program, limits, tuple(num_slots)
        self.device = torch.device(device)
        self.manager = CacheManager(plan.lifecycles, num_slots, limits)
        self.pools = PoolMemory(plan, num_slots, device, fill)
        checkpoint = Checkpoint(weights, ACTIVATION_DTYPES[program.dtype], rank)
        self.constants = make_constants(program.constants, device, checkpoint)
        self._shaper = StepShaper(self.manager, program.buckets)
        self._buffer = StepBuffer(program, self.manager, limits, self.device)
        self.step_buffer = self._buffer.tensor
        self._graphs = {key: Executor(graph) for key, graph in program.graphs.items()}
        self._prologues = {phase: Executor(graph) for phase, graph in program.prologues.items()}
        self._bound = [self._bind(layer) for layer in range(len(program.bindings))]
        self._domains: list[Domain] = [program.signatures[at.signature]["domain"] for at in program.bindings]
        self._inputs = LayerInputs(program, self.device)
        self._staged = StagedLayers(program, self.manager, self.device)
        corrected = any(section.name == "accepted_rows" for part in program.step.values() for section in part)
        rows = next_bucket(limits.max_sequences, program.buckets) if corrected else 0
        self.accepted = torch.zeros(rows, dtype=torch.int32, device=device)
        self._step: Step | None = None
        self._in_flight: Step | None = None
        self._values: dict[Phase, Tensors] = {}
        self._done: set[int] = set()
        self._selections = Selections()

    def __repr__(self) -> str:
        free = f"{sum(self.manager.free_slots):,} of {sum(self.num_slots):,} slots free"
        prefixes = f"; {self.prefix_statistics()}" if self.prefix_statistics().lookups else ""
        admitted = f"{len(self.manager.sequences)} admitted"
        return f"<cache of {self.program.name} on {self.device}: {admitted}, {free}{prefixes}>"

    # One step

    def begin(
        self, requests: Sequence[Request], prologue: bool = True, domains: Collection[Domain] | None = None
    ) -> Step:
        """Take the step's pages, copy its host data in one go, and run the prologue of each phase.

        ``prologue=False`` leaves that to a captured graph (`prologue`). ``domains``: whose layers will run, by default
        all; draft layers that miss a sequence's tokens take no part in its later steps. After an `advance`, lengths are
        corrected by what ``accepted`` holds when the prologue runs. Raises `OutOfPages` and whatever `make_step` and
        `CacheManager.extend` raise, with nothing changed; KVC504 for domains that cannot be, KVC505 while another step
        is open.
        """
        if self._step is not None:
            raise fail("KVC505", "begin while a step is open", help="commit it or abort it first")
        only = self._only(domains)
        step = self._shaper.shape(requests, only, self._in_flight)
        # Own rows of a generation step are read back from the pools, so its pages are held whatever is accepted.
        self.manager.extend(step.counts, step.drafted, only)
        self._open(step, prologue)
        return step

    def padding_step(
        self, sequences: int, tokens: int = 1, prologue: bool = True, domains: Collection[Domain] | None = None
    ) -> Step:
        """Open a generation step of ``sequences`` times ``tokens`` padding rows: it touches no page.

        For warming up and capturing a bucket; end it with `abort`.
        """
        if self._step is not None:
            raise fail("KVC505", "padding_step while a step is open", help="commit it or abort it first")
        step = padding_step(sequences, tokens, self.manager, self._only(domains))
        self._open(step, prologue)
        return step

    def prologue(self, step: Step) -> None:
        """Derive what the layers of the step share from the step buffer (page tables, positions, write rows)."""
        self._check_open(step)
        for phase, sections in self._sections.items():
            run = self._prologues.get(phase)
            derived = run.run(sections) if run else {}
            self._values[phase] = sections | {f"prologue.{name}": value for name, value in derived.items()}

    def layer(self, layer: int, *values: torch.Tensor) -> torch.Tensor:
        """Attention of model layer ``layer`` over the step's rows; stores what the layer keeps of them.

        ``values`` are the inputs of the layer's graph, before RoPE, in the program's dtype. `gqa`: q ``[T, H, D]``, k
        ``[T, Hk, D]``, v ``[T, Hk, V]``; `mla`: q_nope ``[T, H, N]``, q_rope ``[T, H, R]``, latent ``[T, C]`` (normed),
        k_rope ``[T, R]``, these two with or without an axis of one head; `mla_sparse`: those of `mla` and, unless it
        shares an indexer, index_q ``[T, Hi, Di]``, index_k ``[T, Di]``, index_weights ``[T, Hi]`` in fp32. What
        ``accepts`` in the manifest says of every phase of the step may be float8_e4m3fn: codes under the layer's own
        scale, not copied. Returns ``[T, H, V]``.
        T is ``step.tokens``, or ``step.padded_tokens`` for a caller whose inputs are bucket-sized (padding rows of the
        output are 0). KVC505 without an open step, KVC506 for a wrong layer, number of inputs, shape, dtype or device.
        """
        step = self._open_step("layer")
        bound = self._layer(layer)
        self._staged.name(layer, "layer")
        if not step.runs(self._domains[layer]):
            message = f"layer {layer} is a {self._domains[layer]} layer, which this step leaves out"
            raise fail("KVC505", message, help="name its domain in begin, or do not call it")
        inputs = self._inputs.named(layer, step, values)
        padded = len(next(iter(inputs.values()))) == step.padded_tokens
        parts, start = [], 0
        for part in step.parts:
            count = _rows_of(part, padded)
            rows = {name: padded_rows(x[start : start + count], part.padded_tokens) for name, x in inputs.items()}
            made = self._run(layer, part.phase, {**bound, **self._values[part.phase], **rows})
            parts.append(made["out"][:count])
            start += count
        self._done.add(layer)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def write_back(self, layer: int, *staging: torch.Tensor) -> None:
        """Store the step's rows of a layer whose attention the engine computes, from where it has put them.

        ``staging``: one tensor a field (`gqa`: k, v; `mla`: latent, rope), ``[sequences, L, heads, dim]`` in the
        program's dtype, on any strides: sequences in the order of the step's requests, or as many as a bucket has; L
        rows or more a sequence, its tokens at their positions, after RoPE. KVC505 without an open step, KVC506 for
        staging that does not fit and for a layer whose attention kvc computes; nothing is written then.
        """
        self._run_staged("write_back", layer, staging)
        self._done.add(layer)

    def stage(self, layer: int, *staging: torch.Tensor) -> None:
        """Write the history of such a layer to ``staging``, retained rows from the twin; errors as of `write_back`.

        In the context phase the rows before the step, which leaves its own as they were computed; in generation the
        step's own too, as stored: KVC505 where `write_back` has not stored them yet. No other row is written.
        """
        step = self._open_step("stage")
        if any(part.phase == "generation" for part in step.parts) and layer not in self._done:
            message = f"stage of layer {layer} before write_back: generation reads the step's rows as stored"
            raise fail("KVC505", message, help="put the step's rows into staging and call write_back first")
        self._run_staged("stage", layer, staging)

    def positions(self, padded: bool = False) -> torch.Tensor:
        """The place of each of the step's rows in its sequence, int32.

        ``padded``: of the rows of bucket-sized inputs, 0 for padding. Made of the step buffer by ops, so that a
        captured step has its own. KVC505 without an open step.
        """
        parts = [self._positions(part)[: _rows_of(part, padded)] for part in self._open_step("positions").parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def commit(self, step: Step, accepted: Mapping[SequenceId, int] | None = None) -> None:
        """End the step; ``accepted`` of each sequence's tokens count, all of them where it says nothing.

        0 undoes the step for a sequence. KVC505 for a step that is not open, or some of whose layers have not run (a
        captured step calls none); KVC507 for a count that cannot be.
        """
        self._check_open(step)
        counts = accepted_counts(step.requests, accepted) if accepted else step.counts
        if self._done and any(counts.values()):
            self._check_layers(step)
        self.manager.commit(counts)
        self._close()

    def advance(self, step: Step) -> None:
        """End the step as if all its tokens were accepted, before the host knows; `settle` says it later.

        The next step begins at the lengths that ``accepted`` makes of it on the device. Context requests count whole,
        their entries are not read. KVC505 as `commit`; KVC528 while an earlier step is not settled, and for a program
        that cannot correct lengths.
        """
        self._check_open(step)
        if not self.feedback:
            message = f"program {self.program.name} cannot correct lengths on the device"
            raise fail("KVC528", message, help="commit the step, or compile a spec with `draft:`")
        if self._in_flight is not None:
            raise fail("KVC528", "the step before this one is still in flight", help="settle it first")
        self._check_layers(step)
        drafted = generating(step)
        self.manager.commit(accepted_counts(step.requests, {}), {request.id: request.tokens for request in drafted})
        self._in_flight = step
        self._close()

    def settle(self, step: Step, accepted: Mapping[SequenceId, int] | None = None) -> None:
        """Say what an advanced step accepted, as in `commit`: lengths are true again, pages go back.

        A step that has begun since goes on: the device has corrected it. KVC505 for a step that is not in flight,
        KVC507 for a count that cannot be, or of a sequence that generated nothing in the step.
        """
        if step is not self._in_flight:
            raise fail("KVC505", "this step is not in flight", help="advance puts a step in flight, settle ends it")
        self.manager.settle(accepted_counts(generating(step), accepted or {}))
        self._in_flight = None

    def abort(self, step: Step) -> None:
        """End the step as if it had not begun: nothing is committed, its pages go back."""
        self.commit(step, {request.id: 0 for request in step.requests})

    @cached_property
    def static_tensors(self) -> Tensors:
        """The memory of the cache that keeps its address and its meaning: register these as `static`.

        One tensor each: it stands for others of the same memory (two views of a weight), as pools do for layers' views.
        """
        pools = {f"pool.{group}.{position}": tensor for (group, position), tensor in self.pools.tensors.items()}
        held = pools | self.constants | self.feedback
        first = {storage_id(tensor): name for name, tensor in reversed(held.items())}
        return {name: tensor for name, tensor in held.items() if first[storage_id(tensor)] == name}

    @cached_property
    def feedback(self) -> Tensors:
        """What the engine writes on the device between two steps, by placeholder; nothing where no tokens are
        drafted."""
        return {"feedback.accepted": self.accepted} if len(self.accepted) else {}

    def bound_tensors(self, layer: int) -> Tensors:
        """What a layer's graphs are bound to, by placeholder (`pool.history`, `scale.k`). KVC506 for no such layer."""
        return dict(self._layer(layer))

    def selection(self, layer: int) -> torch.Tensor:
        """The rows that an `mla_sparse` layer has just read, int32 ``[step.tokens, K]``: positions, -1 behind them.

        KVC505 without an open step, and where they are no longer kept: another layer has chosen since.
        """
        self._layer(layer)
        return self._selections.of_step(self.program.bindings[layer], self._open_step("selection"))

    # Internals

    def _run(self, layer: int, phase: Phase, values: Tensors) -> Tensors:
        """A layer's graph of a phase; what it chooses is kept for those that share it."""
        binding = self.program.bindings[layer]
        made = self._graphs[binding.signature, phase].run(values | self._selections.taken(binding, phase))
        self._selections.keep(layer, phase, made)
        return made

    def _run_staged(self, call: str, layer: int, staging: Sequence[torch.Tensor]) -> None:
        """A graph of a staged layer, phase by phase, once all of them are known to fit."""
        step, bound = self._open_step(call), self._layer(layer)
        name = self._staged.name(layer, call)
        for part, rows in self._staged.parts(layer, step, staging):
            self._graphs[name, part.phase].run({**bound, **self._values[part.phase], **rows})

    def _bind(self, layer: int) -> Tensors:
        binding = self.program.bindings[layer]
        pools = {f"pool.{role}": self.pools.view(*place) for role, place in binding.pools.items()}
        return pools | {name: self.constants[constant] for name, constant in binding.constants.items()}

    def _open(self, step: Step, prologue: bool) -> None:
        """Make the step the open one; its pages go back where it cannot be."""
        try:
            self._sections = self._buffer.send(step, self.feedback)
            self._step, self._values, self._done, self._selections = step, {}, set(), Selections()
            if prologue:
                self.prologue(step)
        except Exception:
            self.manager.commit({request.id: 0 for request in step.requests})
            self._close()
            raise

    def _positions(self, part: Part) -> torch.Tensor:
        sections, ops = self._sections[part.phase], torch.ops.kvc
        committed, query_starts, sequence_ids, *correction = (
            sections[name] for name in (*_POSITIONS, *(_CORRECTION if self.feedback else ()))
        )
        if correction:
            committed = ops.correct_lengths.default(committed, *correction)
        positions, _ = ops.step_positions.default(committed, query_starts, sequence_ids)
        return positions

    def _close(self) -> None:
        self._step, self._values, self._sections, self._selections = None, {}, {}, Selections()

    def _open_step(self, call: str) -> Step:
        if self._step is None:
            raise fail("KVC505", f"{call} without an open step", help="call begin first")
        if not self._values:
            raise fail("KVC505", f"{call} before the step's prologue", help="call prologue(step) first")
        return self._step

    def _check_open(self, step: Step) -> None:
        if step is not self._step:
            message = "this step is not open: it was committed, or another cache began it"
            raise fail("KVC505", message, help="begin gives a step, commit ends it")

    def _only(self, domains: Collection[Domain] | None) -> tuple[Domain, ...] | None:
        """The domains of a step, None where all run; the target's layers hold every token."""
        known = self.manager.domains
        if domains is None or known == set(domains):
            return None
        if not known.issuperset(domains) or "target" not in domains:
            message = f"domains {sorted(domains)}, of a program of {sorted(known)} layers"
            raise fail("KVC504", message, help="a step runs the target's layers, with or without the draft's")
        return tuple(sorted(domains))

    def _check_layers(self, step: Step) -> None:
        """Some layers have run, others have not; where none has, a captured graph has run all of them."""
        wanted = (layer for layer, domain in enumerate(self._domains) if step.runs(domain))
        missing = next((layer for layer in wanted if layer not in self._done), None)
        if self._done and missing is not None:
            message = f"layer {missing} has not run: its rows of this step would be missing from the cache"
            raise fail(
                "KVC505", message, help="call layer (of a staged one write_back) for every layer, or abort the step"
            )

    def _layer(self, layer: int) -> Tensors:
        if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < len(self._bound):
            raise fail("KVC506", f"layer {layer!r} of a model of {len(self._bound)} layers")
        return self._bound[layer]


# What positions are made of, and what corrects the first of them.
_POSITIONS = ("step.committed", "step.query_starts", "step.sequence_ids")
_CORRECTION = ("step.scheduled", "step.accepted_rows", "feedback.accepted")


def _rows_of(part: Part, padded: bool) -> int:
    return part.padded_tokens if padded else part.tokens
