"""What a caller gives to a layer of a cache, checked before anything is written."""

from collections.abc import Sequence
from functools import cached_property

import torch

from kvc.diagnostics import KvcError, fail
from kvc.graphs.graph import CODES, qualified_name
from kvc.graphs.program import Phase, Program
from kvc.runtime.batch import Step

Tensors = dict[str, torch.Tensor]


class LayerInputs:
    """Shapes and dtypes that the graphs of a program take, and the inputs of a call by placeholder."""

    program: Program
    device: torch.device

    @cached_property
    def _shapes(self) -> dict[str, dict[str, tuple[tuple[int, ...], torch.dtype]]]:
        """Signature -> input -> shape without its rows, and dtype."""
        return {
            signature: {
                qualified_name(node): (tuple(node.meta["val"].shape[1:]), node.meta["val"].dtype)
                for node in graph.placeholders
                if node.meta["role"] == "input"
            }
            for (signature, _), graph in self.program.graphs.items()
        }

    @cached_property
    def _codes(self) -> dict[tuple[str, Phase], dict[str, tuple[torch.dtype, ...]]]:
        """Graph -> input -> dtypes of the codes that it may hold."""
        return {
            key: {
                qualified_name(node): tuple(CODES[code] for code in node.meta["accepts"])
                for node in graph.placeholders
                if node.meta.get("accepts")
            }
            for key, graph in self.program.graphs.items()
        }

    def _taken(self, signature: str, step: Step, name: str, dtype: torch.dtype) -> list[torch.dtype]:
        """The dtypes in which every phase of the step takes an input."""
        codes = [self._codes[signature, part.phase].get(name, ()) for part in step.parts]
        return [dtype, *(code for code in CODES.values() if all(code in phase for phase in codes))]

    def _named_inputs(self, layer: int, values: Sequence[torch.Tensor]) -> Tensors:
        """The inputs by placeholder; fields of one head get the axis of it where the caller left it out."""
        shapes = self._shapes[self.program.bindings[layer].signature]
        if len(values) != len(shapes):
            names = ", ".join(name.removeprefix("input.") for name in shapes)
            raise fail("KVC506", f"layer {layer}: {len(values)} inputs are given, expected {len(shapes)}: {names}")
        return {
            name: x[:, None] if shape[:1] == (1,) and x.ndim == len(shape) else x
            for (name, (shape, _)), x in zip(shapes.items(), values, strict=True)
        }

    def _check_inputs(self, layer: int, step: Step, inputs: Tensors) -> int:
        """The rows that are given; KVC506 where an input does not fit."""
        first = next(iter(inputs))
        rows = inputs[first].shape[:1]
        allowed = sorted({step.tokens, step.padded_tokens})
        if not rows or rows[0] not in allowed:
            raise _wrong_input(
                layer, first.removeprefix("input."), f"{list(rows)} rows", f"{' or '.join(map(str, allowed))} rows"
            )
        signature = self.program.bindings[layer].signature
        for name, (shape, dtype) in self._shapes[signature].items():
            x, taken = inputs[name], self._taken(signature, step, name, dtype)
            if (tuple(x.shape), x.device.type) != ((*rows, *shape), self.device.type) or x.dtype not in taken:
                expected = f"{' or '.join(map(str, taken))} {[*rows, *shape]} on {self.device}"
                raise _wrong_input(
                    layer, name.removeprefix("input."), f"{x.dtype} {list(x.shape)} on {x.device}", expected
                )
        return rows[0]


def _wrong_input(layer: int, name: str, got: str, expected: str) -> KvcError:
    return fail("KVC506", f"layer {layer}: {name} has {got}, expected {expected}")
