"""From a measurement to its row."""

import platform
from dataclasses import dataclass

import torch

import kvc
from kvc.bench.ceilings import Ceilings
from kvc.bench.timing import Timing
from kvc.bench.work import Work
from kvc.report.bench_rows import Row


@dataclass(frozen=True)
class Peer:
    """Another library's time for the same work; no name where there is none."""

    name: str = ""
    median_us: float = 0.0


NO_PEER = Peer()


def row_of(
    op: str,
    case: str,
    kernel: str,
    timing: Timing,
    work: Work,
    ceilings: Ceilings,
    device: str,
    error: float,
    peer: Peer = NO_PEER,
) -> Row:
    """Put one measurement together."""
    seconds = timing.median * 1e-6
    bandwidth, rate = work.bytes / seconds, work.flops / seconds
    bound, fraction = _bound(bandwidth, rate, work, ceilings)
    return Row(
        op=op,
        case=case,
        kernel=kernel,
        median_us=round(timing.median, 2),
        fastest_us=round(timing.fastest, 2),
        captured=timing.captured,
        bytes=work.bytes,
        flops=work.flops,
        gbps=round(bandwidth / 1e9, 1),
        tflops=round(rate / 1e12, 2),
        bound=bound,
        fraction=round(fraction, 3),
        error=float(f"{error:.3g}"),
        peer=peer.name,
        peer_us=round(peer.median_us, 2),
        peer_ratio=round(peer.median_us / timing.median, 2),
        device=device,
        **versions(),
    )


def _bound(bandwidth: float, rate: float, work: Work, ceilings: Ceilings) -> tuple[str, float]:
    reached = {"copy": (bandwidth, ceilings.copy), work.unit: (rate, getattr(ceilings, work.unit))}
    fractions = {name: got / most for name, (got, most) in reached.items() if most}
    return max(fractions.items(), key=lambda item: item[1]) if fractions else ("", 0.0)


def versions() -> dict[str, str]:
    """Of what the times depend on."""
    try:
        from triton import __version__ as triton
    except ImportError:
        triton = ""
    return {"torch": torch.__version__, "triton": triton, "kvc": kvc.__version__}


def device_name(device: torch.device) -> str:
    """`NVIDIA H200`, or the processor's architecture."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.machine()
