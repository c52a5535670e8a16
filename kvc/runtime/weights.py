"""Tensors of a checkpoint by name: where a program's weights and measured scales come from."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from kvc.capabilities.checkpoint_names import SCALE_BLOCK, SCALE_SUFFIX
from kvc.diagnostics import KvcError, fail

Weights = Mapping[str, torch.Tensor]
_INDEX = "model.safetensors.index.json"


class Checkpoint:
    """The tensors of one rank of a model, in the program's activation dtype.

    ``weights`` maps the checkpoint's names to tensors (a ``state_dict()``, or `load_weights`), None: there are
    none. ``rank`` says whose heads to take of a tensor that holds those of all tensor parallel ranks.
    """

    def __init__(self, weights: Weights | None, dtype: torch.dtype, rank: int = 0) -> None:
        self.weights, self.dtype, self.rank = weights, dtype, rank
        self._kv_b: tuple[str, torch.Tensor] | None = None  # of the layer asked for last: two constants share it

    def scale(self, names: list[str]) -> float:
        """One finite positive number, under the first of ``names`` that there is; all that there are must agree."""
        found = {name: self._number(name) for name in names if name in (self.weights or ())}
        if not found:
            raise self._missing(names[0])
        if len(set(found.values())) > 1:
            values = ", ".join(f"{name} is {value!r}" for name, value in found.items())
            raise fail("KVC513", f"a scale has two values in the checkpoint: {values}", help="remove one of them")
        return next(iter(found.values()))

    def _number(self, name: str) -> float:
        tensor = self._get(name)
        value = float(tensor.item()) if tensor.numel() == 1 else float("nan")
        if not 0 < value < float("inf"):
            message = f"scale {name} of the checkpoint is {_shown(tensor)}, not one finite number above 0"
            raise fail("KVC513", message)
        return value

    def kv_b_part(self, params: Mapping[str, Any]) -> torch.Tensor:
        """W_UK ``[H, N, C]`` or W_UV ``[H, C, V]``: views of kv_b ``[H * (N + V), C]``, no copy where dtypes agree."""
        name, heads, nope, width = (params[key] for key in ("tensor", "heads", "nope", "v"))
        if self._kv_b is None or self._kv_b[0] != name:
            self._kv_b = name, self._own_rows(name, heads * (nope + width), params["latent"])
        w_uk, w_uv = self._kv_b[1].unflatten(0, (heads, nope + width)).split((nope, width), 1)
        return w_uk if params["part"] == "w_uk" else w_uv.transpose(1, 2)

    def _own_rows(self, name: str, rows: int, columns: int) -> torch.Tensor:
        """The rank's rows of a matrix, dequantized where the checkpoint has it in fp8."""
        given = self._get(name)
        if given.ndim != 2 or given.shape[1] != columns:
            raise _unfit(name, f"is {list(given.shape)}, expected [{rows}, {columns}]")
        if given.shape[0] % rows:
            raise _unfit(name, f"axis 0 is {given.shape[0]}, expected {rows}, or a multiple of it for all ranks")
        ranks = given.shape[0] // rows
        if ranks > 1 and self.rank >= ranks:
            raise _unfit(name, f"holds the heads of {ranks} ranks; rank {self.rank} is asked for")
        whole = self._dequantized(name, given)
        return whole if ranks == 1 else whole.narrow(0, self.rank * rows, rows)

    def _dequantized(self, name: str, given: torch.Tensor) -> torch.Tensor:
        if given.dtype != torch.float8_e4m3fn:
            if not given.is_floating_point():
                raise _unfit(name, f"holds {given.dtype}, expected floating point numbers")
            return given.detach().to(self.dtype)
        blocks = self._get(name + SCALE_SUFFIX).float()
        expected = [-(-size // SCALE_BLOCK) for size in given.shape]
        if list(blocks.shape) != expected:
            raise _unfit(name + SCALE_SUFFIX, f"is {list(blocks.shape)}, expected {expected}")
        for axis in (0, 1):
            blocks = blocks.repeat_interleave(SCALE_BLOCK, axis).narrow(axis, 0, given.shape[axis])
        return (given.float() * blocks).to(self.dtype)

    def _get(self, name: str) -> torch.Tensor:
        if self.weights is None or name not in self.weights:
            raise self._missing(name)
        return self.weights[name]

    def _missing(self, name: str) -> KvcError:
        if self.weights is None:
            help = "allocate(..., weights=model.state_dict()), or weights=kvc.load_weights(folder)"
            return fail(
                "KVC512", f"the program needs {name} of the model's checkpoint, and no weights are given", help=help
            )
        near = get_close_matches(name, [str(known) for known in self.weights], 1, 0.6)
        return fail("KVC512", f"the weights have no {name}", help=f"the nearest name is {near[0]}" if near else "")


def _shown(tensor: torch.Tensor) -> str:
    return repr(tensor.item()) if tensor.numel() == 1 else f"a tensor of shape {list(tensor.shape)}"


def _unfit(name: str, problem: str) -> KvcError:
    return fail(
        "KVC513", f"{name} of the checkpoint {problem}", help="give the weights of the model that the spec describes"
    )


def load_weights(folder: str | Path) -> Weights:
    """The tensors of a folder of safetensors by name, each read when it is asked for; KVC514 where there is none."""
    return SafetensorsFolder(folder)


class SafetensorsFolder(Mapping[str, torch.Tensor]):
    """The tensors of a folder's safetensors files, each read when it is asked for."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files = _files_by_name(self._folder)

    def __getitem__(self, name: str) -> torch.Tensor:
        file = self._files[name]
        with _readable(file) as opened:
            return opened.get_tensor(name)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _files_by_name(folder: Path) -> dict[str, Path]:
    """Tensor -> file, from the index where there is one, else from the files' own headers."""
    index = folder / _INDEX
    if index.is_file():
        return _indexed(folder, index)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise fail(
            "KVC514", f"{folder} holds no safetensors files", help="name the folder that holds model*.safetensors"
        )
    names: dict[str, Path] = {}
    for file in files:
        with _readable(file) as opened:
            names.update(dict.fromkeys(opened.keys(), file))
    return names


def _indexed(folder: Path, index: Path) -> dict[str, Path]:
    try:
        entries = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        # Files beside the index and nowhere else: it may come from anywhere.
        return {name: folder / Path(file).name for name, file in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise fail("KVC514", f"{index} is no index of safetensors files: {reason}") from error


def _readable(file: Path) -> Any:
    if find_spec("safetensors") is None:
        raise fail("KVC601", "reading a folder of weights needs safetensors", help="pip install 'kvc[hf]'")
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, framework="pt")
    except (OSError, SafetensorError) as error:
        raise fail("KVC514", f"{file} cannot be read: {error}", help="fetch the file again") from error
