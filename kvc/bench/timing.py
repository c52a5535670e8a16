"""Times of calls: medians of many, of inputs that are not in the L2 cache.

On a GPU the calls are captured into one graph, so that the time is the device's and not that of launching; a call that
cannot be captured is timed with events, after a flush of the cache.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

Call = Callable[[], object]
REPLAYS = 20  # of a graph; the median is over them
MIN_GRAPH_CALLS = 8  # calls in a graph at least: a replay costs some microseconds of its own


@dataclass(frozen=True)
class Timing:
    """Microseconds of a call; ``captured``: measured inside a CUDA graph."""

    median: float
    fastest: float
    captured: bool


def sets_beyond_cache(nbytes: int, device: torch.device, most: int = 64) -> int:
    """How many sets of inputs of ``nbytes`` are four times the L2 cache, within 1 to ``most``."""
    cache = torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else 0
    return max(1, min(most, -(-4 * cache // max(1, nbytes))))


def time_calls(calls: Sequence[Call], device: torch.device) -> Timing:
    """Time the calls, each on inputs of its own, as one kind of call."""
    if device.type != "cuda":
        return _on_host(calls)
    try:
        return _in_graph(calls)
    except RuntimeError:  # of torch, from a call that reads the device: it cannot be captured
        torch.cuda.synchronize()
        return time_launched(calls)


def _on_host(calls: Sequence[Call], seconds: float = 0.5) -> Timing:
    calls[0]()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        calls[len(found) % len(calls)]()
        found.append((time.perf_counter() - start) * 1e6)
    return Timing(statistics.median(found), min(found), False)


def _in_graph(calls: Sequence[Call]) -> Timing:
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph, rounds = torch.cuda.CUDAGraph(), -(-MIN_GRAPH_CALLS // len(calls))
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    graph.replay()
    found = [_elapsed(graph.replay) / (rounds * len(calls)) for _ in range(REPLAYS)]
    return Timing(statistics.median(found), min(found), True)


def time_launched(calls: Sequence[Call]) -> Timing:
    """Time calls on a GPU between events, the cache flushed before each; launching is in it where it takes longer."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    found = []
    for i in range(REPLAYS // 2):
        flush.zero_()
        found.append(_elapsed(calls[i % len(calls)]))
    return Timing(statistics.median(found), min(found), False)


def _elapsed(call: Call) -> float:
    """Microseconds between two events around a call."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e3
