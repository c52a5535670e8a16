"""A folder of safetensors files as a mapping from names to tensors."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from kvc.diagnostics import fail
from kvc.runtime.weights import Weights

_INDEX = "model.safetensors.index.json"


def load_weights(folder: str | Path) -> Weights:
    """The tensors of a folder of safetensors by name, each read when it is asked for.

    KVC514 for a folder without any and for files that are damaged or contradict each other, then or when they are read;
    KVC601 where the safetensors library is missing.
    """
    return SafetensorsFolder(folder)


class SafetensorsFolder(Mapping[str, torch.Tensor]):
    """The tensors of a folder's safetensors files, each read when it is asked for."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files = _files_by_name(self._folder)

    def __getitem__(self, name: str) -> torch.Tensor:
        with _opened(self._files[name]) as file:
            return file.get_tensor(name)  # type: ignore[no-any-return]

    def __contains__(self, name: object) -> bool:
        return name in self._files  # a mapping's own reads the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"<{len(self):,} tensors in {self._folder}>"


def _files_by_name(folder: Path) -> dict[str, Path]:
    """Tensor -> file, from the index where there is one, else from the files' own headers."""
    index = folder / _INDEX
    return _indexed(folder, index) if index.is_file() else _listed(folder)


def _listed(folder: Path) -> dict[str, Path]:
    names: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                if other := names.get(name):
                    message = f"{name} is in {other.name} and in {path.name} of {folder}, which has no {_INDEX}"
                    raise fail("KVC514", message, help="leave the files of one model there")
                names[name] = path
    if not names:
        what = "holds no safetensors files" if folder.is_dir() else "is no folder"
        raise fail("KVC514", f"{folder} {what}", help="name the folder that holds model*.safetensors")
    return names


def _indexed(folder: Path, index: Path) -> dict[str, Path]:
    try:
        entries = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        # Files beside the index and nowhere else: it may come from anywhere.
        return {name: folder / Path(file).name for name, file in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"{index} is no index of safetensors files: {type(error).__name__}: {error}"
        raise fail("KVC514", message, help="fetch the file again") from error


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An open file; whatever goes wrong in it is told as a finding."""
    if find_spec("safetensors") is None:
        raise fail("KVC601", "reading a folder of weights needs safetensors", help="pip install 'kvc[hf]'")
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise fail("KVC514", f"{path} cannot be read: {error}", help="fetch the file again") from error
