"""What a caller gives to `Cache.layer`: by placeholder, and only where every phase of the step takes it."""

from collections.abc import Sequence
from functools import cached_property

import torch

from kvc.diagnostics import KvcError, fail
from kvc.graphs.graph import CODES, qualified_name
from kvc.graphs.program import Phase, Program
from kvc.runtime.batch import Step

Tensors = dict[str, torch.Tensor]


class LayerInputs:
    """The inputs of a program's layers, as their graphs declare them."""

    def __init__(self, program: Program, device: torch.device) -> None:
        self._program, self._device = program, device

    def named(self, layer: int, step: Step, values: Sequence[torch.Tensor]) -> Tensors:
        """The inputs by placeholder, codes as bytes; KVC506 for a number, shape, dtype or device that does not fit."""
        inputs = self._named(layer, values)
        self._check(layer, step, inputs)
        return {name: _bytes_of(x) for name, x in inputs.items()}

    @cached_property
    def _shapes(self) -> dict[str, dict[str, tuple[tuple[int, ...], torch.dtype]]]:
        """Signature -> input -> shape without its rows, and dtype."""
        return {
            signature: {
                qualified_name(node): (tuple(node.meta["val"].shape[1:]), node.meta["val"].dtype)
                for node in graph.placeholders
                if node.meta["role"] == "input"
            }
            for (signature, _), graph in self._program.graphs.items()
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
            for key, graph in self._program.graphs.items()
        }

    def _taken(self, signature: str, step: Step, name: str, dtype: torch.dtype) -> list[torch.dtype]:
        """The dtypes in which every phase of the step takes an input."""
        codes = [self._codes[signature, part.phase].get(name, ()) for part in step.parts]
        return [dtype, *(code for code in CODES.values() if all(code in phase for phase in codes))]

    def _named(self, layer: int, values: Sequence[torch.Tensor]) -> Tensors:
        """By placeholder; fields of one head get the axis of it where the caller left it out."""
        shapes = self._shapes[self._program.bindings[layer].signature]
        if len(values) != len(shapes):
            names = ", ".join(name.removeprefix("input.") for name in shapes)
            raise fail("KVC506", f"layer {layer}: {len(values)} inputs are given, expected {len(shapes)}: {names}")
        return {
            name: x[:, None] if shape[:1] == (1,) and x.ndim == len(shape) else x
            for (name, (shape, _)), x in zip(shapes.items(), values, strict=True)
        }

    def _check(self, layer: int, step: Step, inputs: Tensors) -> None:
        """Raise KVC506 where an input does not fit."""
        first = next(iter(inputs))
        rows = inputs[first].shape[:1]
        allowed = sorted({step.tokens, step.padded_tokens})
        if not rows or rows[0] not in allowed:
            raise _wrong_input(
                layer, first.removeprefix("input."), f"{list(rows)} rows", f"{' or '.join(map(str, allowed))} rows"
            )
        signature = self._program.bindings[layer].signature
        for name, (shape, dtype) in self._shapes[signature].items():
            x, taken = inputs[name], self._taken(signature, step, name, dtype)
            if (tuple(x.shape), x.device.type) != ((*rows, *shape), self._device.type) or x.dtype not in taken:
                expected = f"{' or '.join(map(str, taken))} {[*rows, *shape]} on {self._device}"
                raise _wrong_input(
                    layer, name.removeprefix("input."), f"{x.dtype} {list(x.shape)} on {x.device}", expected
                )


def _wrong_input(layer: int, name: str, got: str, expected: str) -> KvcError:
    return fail("KVC506", f"layer {layer}: {name} has {got}, expected {expected}")


def _bytes_of(x: torch.Tensor) -> torch.Tensor:
    """Codes as graphs take them, uint8 on the same memory; other values as they are."""
    return x.view(torch.uint8) if x.dtype in CODES.values() else x


def padded_rows(x: torch.Tensor, rows: int) -> torch.Tensor:
    """``x`` with zero rows at the end, so that it has ``rows``."""
    if x.shape[0] == rows:
        return x
    out = x.new_zeros((rows, *x.shape[1:]))
    out[: x.shape[0]] = x
    return out
