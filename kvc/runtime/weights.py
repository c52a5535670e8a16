"""What a program takes from a model's checkpoint: parts of its weights, and measured scales."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch

from kvc.capabilities.checkpoint_names import SCALE_BLOCK, SCALE_SUFFIX
from kvc.diagnostics import KvcError, fail
from kvc.ops.codecs import scale_operand

Weights = Mapping[str, torch.Tensor]

_SHOWN = 3  # names in a message
_PLAIN = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Checkpoint:
    """The tensors of one rank of a model, in the program's activation dtype.

    ``weights`` maps the checkpoint's names to tensors (a ``state_dict()``, or `kvc.load_weights`), None: there are
    none. ``rank`` says whose heads to take of a tensor that holds those of all tensor parallel ranks.
    """

    def __init__(self, weights: Weights | None, dtype: torch.dtype, rank: int = 0) -> None:
        self.weights, self.dtype, self.rank = weights, dtype, rank
        self._kv_b: tuple[str, torch.Tensor] | None = None  # of the layer asked for last: two constants share it

    def require(self, needed: Iterable[Sequence[str]]) -> None:
        """KVC512 unless one of each of these names is there; all that are missing are told at once."""
        known = self.weights or {}
        missing = [names for names in needed if not any(name in known for name in names)]
        if not missing:
            return
        what = " or ".join(missing[0]) if len(missing) == 1 else _shortened([names[0] for names in missing])
        if self.weights is None:
            message = f"the program needs {what} of the model's checkpoint, and no weights are given"
            help = "allocate(..., weights=model.state_dict()), or weights=kvc.load_weights(folder)"
            raise fail("KVC512", message, help=help)
        near = _nearest(missing[0][0], known)
        raise fail("KVC512", f"the weights have no {what}", help=f"the nearest name is {near}" if near else "")

    def scale(self, codec: str, names: Sequence[str]) -> torch.Tensor:
        """The operand of a scale that is under the first of ``names`` that there is; all that there are must agree."""
        self.require([names])
        found = {name: self._number(name) for name in names if name in (self.weights or ())}
        if len(set(found.values())) > 1:
            values = ", ".join(f"{name} is {value!r}" for name, value in found.items())
            raise fail("KVC513", f"a scale has two values in the checkpoint: {values}", help="remove one of them")
        name, value = next(iter(found.items()))
        try:
            return scale_operand(codec, value)
        except KvcError as error:  # a number, and none that can be divided by and multiplied with in fp32
            raise _unfit(name, f"cannot be used: {error.diagnostics[0].message}") from error

    def _number(self, name: str) -> float:
        tensor = self._get(name)
        is_number = tensor.numel() == 1 and tensor.is_floating_point()
        value = float(tensor.item()) if is_number else float("nan")
        if not 0 < value < float("inf"):
            raise _unfit(name, f"is {_shown(tensor)}, expected one finite number above 0")
        return value

    def kv_b_part(self, params: Mapping[str, Any]) -> torch.Tensor:
        """W_UK ``[H, N, C]`` or W_UV ``[H, C, V]``: views of kv_b ``[H * (N + V), C]``, no copy where dtypes agree."""
        name, heads, nope, width = (params[key] for key in ("tensor", "heads", "nope", "v"))
        if self._kv_b is None or self._kv_b[0] != name:
            self._kv_b = name, self._own_rows(name, heads * (nope + width), params["latent"], params["ranks"])
        w_uk, w_uv = self._kv_b[1].unflatten(0, (heads, nope + width)).split((nope, width), 1)
        return w_uk if params["part"] == "w_uk" else w_uv.transpose(1, 2)

    def _own_rows(self, name: str, rows: int, columns: int, ranks: int) -> torch.Tensor:
        """The rank's rows of a matrix, dequantized where the checkpoint has it in fp8."""
        if type(self.rank) is not int or not 0 <= self.rank < ranks:
            last = f"0 to {ranks - 1}" if ranks > 1 else "0: the spec has no tensor parallelism"
            raise fail("KVC508", f"rank={self.rank!r} of {ranks} tensor parallel", help=f"the ranks are {last}")
        given = self._get(name)
        self._check_shape(name, given, rows, columns, ranks)
        start = 0 if given.shape[0] == rows else self.rank * rows
        return self._dequantized(name, given, slice(start, start + rows))

    def _check_shape(self, name: str, given: torch.Tensor, rows: int, columns: int, ranks: int) -> None:
        of_all = f", or {ranks * rows} for all {ranks} ranks" if ranks > 1 else ""
        if given.ndim != 2:
            raise _unfit(name, f"is {list(given.shape)}, expected [{rows}, {columns}]{of_all}")
        if given.shape[0] not in (rows, ranks * rows):
            raise _unfit(name, f"has {given.shape[0]} on axis 0, expected {rows}{of_all}")
        if given.shape[1] != columns:
            raise _unfit(name, f"has {given.shape[1]} on axis 1, expected {columns}")

    def _dequantized(self, name: str, given: torch.Tensor, rows: slice) -> torch.Tensor:
        """These ``rows`` in the activation dtype, rounded once."""
        own = given.detach()[rows]
        if given.dtype in _PLAIN:
            return own.to(self.dtype)
        if given.dtype != torch.float8_e4m3fn:
            raise _unfit(name, f"holds {given.dtype}, expected 16-bit or wider floats, or float8_e4m3fn with scales")
        row, column = (torch.arange(size, device=given.device) // SCALE_BLOCK for size in given.shape)
        scales = self._block_scales(name + SCALE_SUFFIX, given)[row[rows, None], column]
        return (own.float() * scales).to(self.dtype)

    def _block_scales(self, name: str, given: torch.Tensor) -> torch.Tensor:
        self.require([[name]])
        blocks = self._get(name)
        expected = [-(-size // SCALE_BLOCK) for size in given.shape]
        if list(blocks.shape) != expected:
            raise _unfit(name, f"is {list(blocks.shape)}, expected {expected}")
        numbers = blocks.detach().to(given.device, torch.float32)
        if not blocks.is_floating_point() or not bool(((numbers > 0) & numbers.isfinite()).all()):
            raise _unfit(name, "holds other numbers than finite ones above 0")
        return numbers

    def _get(self, name: str) -> torch.Tensor:
        given: Any = (self.weights or {})[name]
        if not isinstance(given, torch.Tensor):
            raise _unfit(name, f"is a {type(given).__name__}, expected a tensor")
        if given.is_meta or given.layout != torch.strided:
            raise _unfit(name, "is a tensor without data" if given.is_meta else f"is {given.layout}, expected dense")
        return given


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """What ``name`` may have been meant for, of the names that end or begin alike: a checkpoint has 100,000."""
    parts = name.split(".")
    head, tail = ".".join(parts[:-2]), ".".join(parts[-2:])
    alike = [other for other in map(str, known) if other.startswith(head) or other.endswith(tail)]
    return next(iter(get_close_matches(name, alike, 1, 0.6)), None)


def _shown(tensor: torch.Tensor) -> str:
    return repr(tensor.item()) if tensor.numel() == 1 else f"a tensor of shape {list(tensor.shape)}"


def _unfit(name: str, problem: str) -> KvcError:
    return fail(
        "KVC513", f"{name} of the checkpoint {problem}", help="give the weights of the model that the spec describes"
    )
