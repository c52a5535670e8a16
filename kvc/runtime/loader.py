"""From an artifact to a cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kvc.artifact import Artifact, accepted_inputs, read_artifact
from kvc.diagnostics import fail
from kvc.graphs.program import Program
from kvc.plan.capacity import mix_of, slots_for_lengths, tokens_for_bytes
from kvc.plan.types import Plan
from kvc.runtime.cache import Cache
from kvc.runtime.cache_manager import Limits
from kvc.runtime.weights import Weights


@dataclass(frozen=True)
class LoadedArtifact:
    """A compiled spec, read from a directory or fresh from the compiler, that caches can be allocated from."""

    artifact: Artifact

    @property
    def plan(self) -> Plan:
        """Where every byte goes."""
        return self.artifact.plan

    @property
    def program(self) -> Program:
        """The graphs and their bindings."""
        return self.artifact.program

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What `manifest.json` holds."""
        return self.artifact.manifest()

    @cached_property
    def accepts(self) -> dict[str, dict[str, list[str]]]:
        """Graph -> input -> element types it takes without a copy."""
        return accepted_inputs(self.program)

    @cached_property
    def limits(self) -> Limits:
        """What the program serves at most."""
        target = self.artifact.spec["values"]["target"]
        return Limits(target["max_sequences"], target["max_seq_len"], target["max_tokens"])

    def allocate(
        self,
        *,
        num_slots: int | Sequence[int] | None = None,
        tokens: int | None = None,
        memory: int | None = None,
        device: str | torch.device | None = None,
        fill: int = 0,
        weights: Weights | None = None,
        rank: int = 0,
    ) -> Cache:
        """Make a cache; give at most one size.

        ``num_slots``: slots of every pool group, or one number a group. ``tokens``: room for that many, in sequences of
        ``max_seq_len`` and one with the rest. ``memory``: bytes to fill. None of them: what the plan says, if the spec
        or the compiler was given a memory size. ``device``: where to, by default the device that the spec targets.
        ``fill`` is the byte that new pools hold. ``weights`` are the model's tensors by the names of its checkpoint,
        for a program that is bound to some (latent attention, scales of a checkpoint); of a tensor that holds the heads
        of all tensor parallel ranks, those of ``rank`` are taken.
        KVC508 for a size that is missing, given twice or too small, for write rows beyond int32, and for a device that
        is not there; KVC512 and KVC513 for weights that are missing or do not fit.
        """
        sizes = {"num_slots": num_slots, "tokens": tokens, "memory": memory}
        given = {name: value for name, value in sizes.items() if value is not None}
        _check_numbers(given)
        if fill not in range(256):
            raise fail("KVC508", f"fill={fill!r} is not a byte")
        slots = self._slots(given)
        if len(slots) != len(self.plan.pool_groups) or not all(slots):
            message = f"{given or 'the plan'} gives {slots} slots in {len(self.plan.pool_groups)} pool groups"
            raise fail("KVC508", message, help="every pool group needs at least one slot")
        self._check_rows(slots)
        return Cache(
            self.plan, self.program, self.limits, slots, _usable(device or self.program.device), fill, weights, rank
        )

    def _check_rows(self, slots: Sequence[int]) -> None:
        """Write rows are int32 on the device."""
        for pool in self.plan.pools:
            per_slot = pool.pages_per_slot * self.plan.lifecycles[pool.lifecycle].tokens_per_page
            if slots[pool.pool_group] * per_slot > _ROWS_END:
                message = f"{slots[pool.pool_group]:,} slots of {per_slot:,} rows in pool {pool.id}: over 2**31 rows"
                raise fail("KVC508", message, help=f"allocate at most {_ROWS_END // per_slot:,} slots")

    def _slots(self, given: dict[str, Any]) -> list[int]:
        match list(given.items()):
            case []:
                return self._planned_slots()
            case [("num_slots", int(count))]:
                return [count] * len(self.plan.pool_groups)
            case [("num_slots", counts)]:
                return list(counts)
            case [("tokens", count)]:
                return self._slots_of_tokens(count)
            case [("memory", nbytes)]:
                return self._slots_of_tokens(tokens_for_bytes(self.plan, nbytes, self.limits.max_seq_len) or 0)
        raise fail("KVC508", f"{' and '.join(given)} are given", help="give the size of the cache once")

    def _slots_of_tokens(self, tokens: int) -> list[int]:
        slots = slots_for_lengths(self.plan, mix_of(tokens, self.limits.max_seq_len))
        return [slots[group.id] for group in self.plan.pool_groups]

    def _planned_slots(self) -> list[int]:
        slots = [group.num_slots for group in self.plan.pool_groups]
        if None in slots:
            message = "no size is given and the artifact was compiled without a memory size"
            raise fail("KVC508", message, help="pass num_slots, tokens or memory")
        return [count or 0 for count in slots]


_ROWS_END = 2**31


def _usable(device: str | torch.device) -> torch.device:
    wanted = torch.device(device)
    if wanted.type == "cuda" and not torch.cuda.is_available():
        raise fail("KVC508", "there is no CUDA device here", help='allocate(..., device="cpu") runs the reference ops')
    return wanted


def _check_numbers(sizes: dict[str, Any]) -> None:
    for name, value in sizes.items():
        numbers = value if name == "num_slots" and isinstance(value, list | tuple) else [value]
        if not all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers):
            raise fail("KVC508", f"{name}={value!r} is not a number of {_UNITS[name]}")


_UNITS = {"num_slots": "slots", "tokens": "tokens", "memory": "bytes"}


def load(directory: str | Path) -> LoadedArtifact:
    """Read an artifact; errors as `kvc.artifact.read_artifact`."""
    return LoadedArtifact(read_artifact(directory))
