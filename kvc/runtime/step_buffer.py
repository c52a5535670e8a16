"""The packed host data of steps on its way to the device: one copy a step, and nothing made again that is the same."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from kvc.compat import current_stream
from kvc.graphs.program import Phase, Program
from kvc.runtime.batch import Part, Step
from kvc.runtime.cache_manager import CacheManager, Limits
from kvc.runtime.packing import Placed, Refill, StepPacker

Tensors = dict[str, torch.Tensor]
_Key = tuple[tuple[Phase, int, int, int], ...]


@dataclass(frozen=True, eq=False, slots=True)
class _Layout:
    """Steps of one shape: where sections lie, and the device's views of them by phase and placeholder."""

    placed: tuple[Placed, ...]
    device: torch.Tensor
    sections: dict[Phase, Tensors]


@dataclass(frozen=True, eq=False, slots=True)
class _Packed:
    """What a host buffer holds: a step of these parts, and what brings it up to date for the next one of them."""

    layout: _Layout
    parts: tuple[Part, ...]
    host: torch.Tensor
    refills: tuple[Refill, ...]


class _Turn:
    """One of the host buffers: pinned where the device is a GPU, with an event that says when it was copied."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        self.host = torch.zeros(capacity, dtype=torch.int32, pin_memory=pinned)
        self.array: np.ndarray = self.host.numpy()
        self.copied = torch.cuda.Event() if pinned else None
        self._device = device
        self.packed: _Packed | None = None

    def wait(self) -> None:
        """Until its last copy is over."""
        if self.copied is not None and not self.copied.query():
            self.copied.synchronize()

    def send(self, packed: _Packed) -> None:
        """Start the copy of what it holds, on the current stream."""
        packed.layout.device.copy_(packed.host, non_blocking=True)
        if self.copied is not None:
            self.copied.record(current_stream(self._device))


class StepBuffer:
    """``tensor``: int32 on the device, where graphs find a step's sections.

    Two host buffers take turns, so that a step is packed while the one before is still being copied.
    """

    def __init__(self, program: Program, manager: CacheManager, limits: Limits, device: torch.device) -> None:
        self._packer = StepPacker(program.step, manager)
        capacity = self._packer.capacity(limits, program.buckets)
        self.tensor = torch.zeros(capacity, dtype=torch.int32, device=device)
        self._turns = [_Turn(capacity, self.tensor.device) for _ in range(2)]
        self._layouts: dict[_Key, _Layout] = {}

    def send(self, step: Step, feedback: Mapping[str, torch.Tensor]) -> dict[Phase, Tensors]:
        """Pack a step and copy it; its sections on the device by phase and placeholder, ``feedback`` among them.

        KVC503 for a step that does not fit.
        """
        self._turns.reverse()
        turn = self._turns[0]
        turn.wait()
        packed = turn.packed
        if packed is not None and packed.parts is step.parts:
            for refill in packed.refills:
                refill()
        else:
            packed = self._pack(turn, step, feedback)
        turn.send(packed)
        return packed.layout.sections

    def _pack(self, turn: _Turn, step: Step, feedback: Mapping[str, torch.Tensor]) -> _Packed:
        turn.packed = None
        layout = self._layout(step, feedback)
        end = self._packer.pack(step, layout.placed, turn.array)
        refills = self._packer.refills(step, layout.placed, turn.array)
        turn.packed = _Packed(layout, step.parts, turn.host[:end], refills)
        return turn.packed

    def _layout(self, step: Step, feedback: Mapping[str, torch.Tensor]) -> _Layout:
        """Kept for generation steps, which have as many shapes as there are buckets."""
        key = tuple((part.phase, part.padded_sequences, part.padded_tokens, part.width) for part in step.parts)
        if key in self._layouts:
            return self._layouts[key]
        placed = self._packer.place(step)
        sections = {part.phase: self._views(part.phase, placed) | dict(feedback) for part in step.parts}
        layout = _Layout(placed, self.tensor[: placed[-1].stop if placed else 0], sections)
        if all(part.phase == "generation" for part in step.parts):
            self._layouts[key] = layout
        return layout

    def _views(self, phase: Phase, placed: tuple[Placed, ...]) -> Tensors:
        return {
            f"step.{at.name}": self.tensor[at.offset : at.stop].view(at.shape) for at in placed if at.phase == phase
        }
