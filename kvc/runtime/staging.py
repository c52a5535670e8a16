"""Staging that an engine gives for a step: which layers have it, what fits, and which part of it each phase sees."""

from collections.abc import Sequence

import torch

from kvc.diagnostics import KvcError, fail
from kvc.graphs.graph import qualified_name
from kvc.graphs.program import STAGING_PARTS, Program
from kvc.runtime.batch import Part, Step
from kvc.runtime.cache_manager import CacheManager

Tensors = dict[str, torch.Tensor]


class StagedLayers:
    """The layers of a program whose attention an engine computes."""

    def __init__(self, program: Program, manager: CacheManager, device: torch.device) -> None:
        self._program, self._manager, self._device = program, manager, device
        self._fields = {
            signature: {
                qualified_name(node): (tuple(node.meta["val"].shape[2:]), node.meta["val"].dtype)
                for node in next(iter(program.graphs_of(signature).values())).placeholders
                if node.meta["role"] == "staging"
            }
            for signature in program.signatures
        }

    def name(self, layer: int, call: str) -> str:
        """What ``Program.graphs`` has for a call of a layer; KVC506 where it is not what the layer is called for."""
        signature = self._program.bindings[layer].signature
        name = f"{signature}.{call}" if call in STAGING_PARTS else signature
        if name not in self._program.callables(signature):
            raise _of_other_kernel(layer, call)
        return name

    def parts(self, layer: int, step: Step, staging: Sequence[torch.Tensor]) -> list[tuple[Part, Tensors]]:
        """What the graph of each phase sees of ``staging``, by placeholder; KVC506 where it does not fit the step."""
        given = self._named(layer, staging)
        self._check(layer, step, given)
        padded = len(staging[0]) == step.padded_sequences
        start, found = 0, []
        for part in step.parts:
            stop = start + (part.padded_sequences if padded else part.sequences)
            found.append((part, {name: x[start:stop] for name, x in given.items()}))
            start = stop
        return found

    def _named(self, layer: int, staging: Sequence[torch.Tensor]) -> Tensors:
        fields = self._fields[self._program.bindings[layer].signature]
        if len(staging) != len(fields):
            names = ", ".join(name.removeprefix("staging.") for name in fields)
            raise fail("KVC506", f"layer {layer}: staging of {len(staging)} fields, expected {len(fields)}: {names}")
        return dict(zip(fields, staging, strict=True))

    def _check(self, layer: int, step: Step, given: Tensors) -> None:
        """Every field has its sizes, and all have as many sequences and rows, enough for the step."""
        sequences, longest = sorted({step.sequences, step.padded_sequences}), self._longest(step)
        room = next(iter(given.values())).shape[:2]
        for name, (size, dtype) in self._fields[self._program.bindings[layer].signature].items():
            x = given[name]
            fits = len(room) == 2 and room[0] in sequences and room[1] >= longest
            if not fits or (x.shape, x.dtype, x.device.type) != ((*room, *size), dtype, self._device.type):
                what = f"layer {layer}: staging of {name.removeprefix('staging.')}"
                of = f"{' or '.join(map(str, sequences))} sequences, L >= {longest}, as many of both in every field"
                expected = f"{dtype} [sequences, L, {', '.join(map(str, size))}] on {self._device}: {of}"
                raise fail("KVC506", f"{what} is {x.dtype} {list(x.shape)} on {x.device}, expected {expected}")

    def _longest(self, step: Step) -> int:
        """Rows of the longest sequence after the step."""
        return max((self._manager.committed(r.id) + r.tokens for r in step.requests), default=0)


def _of_other_kernel(layer: int, call: str) -> KvcError:
    if call in STAGING_PARTS:
        help = "call layer, or compile with `attention: {kernel: engine}`"
        return fail("KVC506", f"{call} of layer {layer}, whose attention kvc computes", help=help)
    help = "put the step's rows into staging, call write_back and stage, and attend there"
    return fail("KVC506", f"{call} of layer {layer}, whose attention an engine computes", help=help)
