"""The device that `kvc run` runs on: what is compiled for it, and what is set up there before the first token."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from kvc.diagnostics import fail


class Device(StrEnum):
    """Where a model and its cache are."""

    CPU = "cpu"
    CUDA = "cuda"


def artifact_on(device: Device, spec: str) -> Any:
    """A spec compiled for the device here, or an artifact that was compiled for it.

    KVC624 without a GPU, KVC625 for an artifact of another device; a CPU runs the reference ops of any artifact.
    """
    import kvc
    from kvc.runtime.loader import LoadedArtifact

    arch = _arch() if device is Device.CUDA else None
    if Path(spec).is_dir():
        loaded = kvc.load(spec)
        _check_target(device, arch, loaded, spec)
        return loaded
    if arch is None:
        return LoadedArtifact(kvc.compile_spec(spec).artifact)
    from kvc.specs import load_spec

    return LoadedArtifact(kvc.compile_spec(load_spec(spec, device=("cuda", arch))).artifact)


def _arch() -> str:
    import torch

    from kvc.ops.kernels import arch_of

    if not torch.cuda.is_available():
        raise fail("KVC624", "there is no CUDA device here", help="leave --device out: kvc run works on a CPU")
    return arch_of(torch.device("cuda", torch.cuda.current_device()))


def _check_target(device: Device, arch: str | None, loaded: Any, folder: str) -> None:
    target = loaded.artifact.spec["values"]["target"]
    got = target["device"], target.get("arch")
    if device is Device.CUDA and got != (device.value, arch):
        made = " ".join(filter(None, got))
        message = f"{folder} was compiled for {made}, not for {device.value} {arch}"
        raise fail("KVC625", message, help="give the spec instead of the artifact: it is compiled for the device")


def prepare(device: Device, runner: Any, ids: Sequence[int]) -> str:
    """On a GPU: compile the kernels of a prefill, capture the decode step, bound torch's memory.

    Returns what the summary must say about it.
    """
    if device is not Device.CUDA:
        return ""
    from kvc.integrations.transformers.runner import prefill
    from kvc.runtime.device_memory import cap_allocator

    runner.admit("warm-up")
    prefill(runner, "warm-up", ids, runner.max_tokens)
    runner.release("warm-up")
    note = ""
    if runner.kvc_cache.program.capture is None:
        note = " (decode is not captured: `kvc compile --explain` says which calls stand in the way)"
    else:
        runner.capture(runner.kvc_cache.program.buckets[:1])
    cap_allocator(runner.model.device)
    return note
