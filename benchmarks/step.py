"""One generation step of a compiled cache: replayed against eager, and what it costs the host.

    python benchmarks/step.py deepseek-v3-fp8 --sequences 1 --length 4096 --out benchmarks/results/step.csv

A step is the prologue and every attention layer on static random inputs. Both forms begin and commit a step of the
cache; outputs are compared bit for bit in the same run. Times are medians in microseconds: `wall` with the device
drained at the end of each step, `device` between two events around the replay, `host` what the host does until it may
go on, for a step after an idle device; `host_next` the same for a step right behind another one.
"""

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # works from a checkout that is not installed

from kvc.compiler import compile_spec
from kvc.ops.kernels import arch_of
from kvc.runtime.batch import Request, Step
from kvc.runtime.capture import capture_inputs, replay_bucket
from kvc.runtime.graph_runner import GraphRunner
from kvc.runtime.loader import LoadedArtifact
from kvc.specs import load_spec

Numbers = dict[str, float]


class Engine:
    """A cache with sequences in it, its static inputs, and its captured step."""

    def __init__(self, spec: str, device: torch.device, sequences: int, length: int, steps: int) -> None:
        target = ("cuda", arch_of(device)) if device.type == "cuda" else ("cpu", None)
        artifact = LoadedArtifact(compile_spec(load_spec(spec, device=target)).artifact)
        tokens = sequences * (length + steps + 64 * 2)
        self.cache = artifact.allocate(tokens=tokens, device=device, weights=random_weights(artifact, device))
        self.layers = range(len(self.cache.program.bindings))
        self.runner, self.device = GraphRunner(), device
        self.names = [f"s{i}" for i in range(sequences)]
        self._grow(length)
        self.given: dict[str, torch.Tensor] = {}
        self.inputs = self._inputs()
        self._capture()

    def requests(self) -> list[Request]:
        """One token of every sequence."""
        return [Request(name, 1, "generation") for name in self.names]

    def forward(self, step: Step) -> list[torch.Tensor]:
        """Prologue and layers of an open step."""
        self.cache.prologue(step)
        return [self.cache.layer(layer, *self.inputs[layer]) for layer in self.layers]

    def eager(self) -> list[torch.Tensor]:
        """A whole step, each op launched."""
        step = self.cache.begin(self.requests(), prologue=False)
        outs = self.forward(step)
        self.cache.commit(step)
        return outs

    def replay(self) -> list[torch.Tensor]:
        """A whole step, its work replayed."""
        step = self.cache.begin(self.requests(), prologue=False)
        bucket = replay_bucket(self.cache, step)
        outs: list[torch.Tensor] = self.runner.replay(bucket, self.copied)
        self.cache.commit(step)
        return outs

    def _grow(self, length: int) -> None:
        """Sequences of that length whose pages hold what new pools hold: no layer runs."""
        for name in self.names:
            self.cache.admit(name)
            while left := length - self.cache.manager.committed(name):
                count = min(left, self.cache.limits.max_tokens)
                self.cache.manager.extend({name: count})
                self.cache.manager.commit({name: count})

    def _inputs(self) -> dict[int, list[torch.Tensor]]:
        """Of each layer, views of one tensor for all layers: a model would make them in the graph."""
        made: dict[int, list[torch.Tensor]] = {}
        for layer in self.layers:
            graph = self.cache.program.graphs[self.cache.program.bindings[layer].signature, "generation"]
            values = [node.meta["val"] for node in graph.placeholders if node.meta["role"] == "input"]
            made[layer] = [self._input(layer, place, x) for place, x in enumerate(values)]
        return made

    def _input(self, layer: int, place: int, x: torch.Tensor) -> torch.Tensor:
        shape = (len(self.layers), len(self.names), *x.shape[1:])
        key = f"{place}: {x.dtype} {shape}"
        if key not in self.given:
            self.given[key] = torch.randn(shape, device=self.device).to(x.dtype)
        return self.given[key][layer]

    def _capture(self) -> None:
        step = self.cache.padding_step(len(self.names), prologue=False)
        planned = capture_inputs(self.cache, step.bucket)
        self.copied = planned.copied
        self.runner.capture(step.bucket, lambda: self.forward(step), planned.static | self.given, planned.copied)
        self.cache.abort(step)


def random_weights(artifact: LoadedArtifact, device: torch.device) -> dict[str, torch.Tensor]:
    """Made on the device: those of a large model take the host a minute."""
    made: dict[str, torch.Tensor] = {}
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[artifact.program.dtype]
    for constant in artifact.program.constants.values():
        p = constant.params
        if constant.kind == "weight" and p["tensor"] not in made:
            rows = p["heads"] * (p["nope"] + p["v"])
            made[p["tensor"]] = (torch.randn(rows, p["latent"], device=device) * p["latent"] ** -0.5).to(dtype)
    return made


def drain(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def median(call: Callable[[], object], device: torch.device, times: int) -> tuple[float, float]:
    """Microseconds of the host until the call returns, and until the device is done."""
    host, wall = [], []
    for _ in range(times):
        drain(device)
        start = time.perf_counter()
        call()
        host.append(time.perf_counter() - start)
        drain(device)
        wall.append(time.perf_counter() - start)
    return statistics.median(host) * 1e6, statistics.median(wall) * 1e6


def following(call: Callable[[], object], device: torch.device, times: int) -> float:
    """Microseconds of the host for a call right behind another one."""
    found = []
    for _ in range(times):
        drain(device)
        call()
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1e6


def device_time(call: Callable[[], object], times: int) -> float:
    """Microseconds between two events, the device held busy before, so that launching is not in it."""
    found = []
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(times):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        flush.zero_()
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(stop) * 1e3)
    return statistics.median(found)


def same(engine: Engine) -> bool:
    """A replayed step and an eager one at the same length give the same bits."""
    step = engine.cache.begin(engine.requests(), prologue=False)
    replayed = [out.clone() for out in engine.runner.replay(replay_bucket(engine.cache, step), engine.copied)]
    engine.cache.abort(step)
    step = engine.cache.begin(engine.requests(), prologue=False)
    outs = engine.forward(step)
    engine.cache.abort(step)
    return all(torch.equal(a, b) for a, b in zip(replayed, outs, strict=True))


def parts(engine: Engine, times: int) -> Numbers:
    """Medians of the host's time in the parts of a replayed step."""
    found: dict[str, list[float]] = {"begin": [], "replay": [], "commit": []}
    for _ in range(times):
        drain(engine.device)
        marks = [time.perf_counter()]
        step = engine.cache.begin(engine.requests(), prologue=False)
        marks.append(time.perf_counter())
        engine.runner.replay(replay_bucket(engine.cache, step), engine.copied)
        marks.append(time.perf_counter())
        engine.cache.commit(step)
        marks.append(time.perf_counter())
        for name, start, stop in zip(found, marks, marks[1:], strict=False):
            found[name].append(stop - start)
    return {f"host_{name}": statistics.median(values) * 1e6 for name, values in found.items()}


def measure(engine: Engine, times: int) -> Numbers:
    """Check that a replayed step equals an eager one, then time both, and the host's part of a replayed one."""
    if not same(engine):
        raise SystemExit("a replayed step differs from an eager one")
    for _ in range(5):
        engine.replay()
        engine.eager()
    host, wall = median(engine.replay, engine.device, times)
    _, eager = median(engine.eager, engine.device, max(5, times // 20))
    numbers = {"replay_wall": wall, "eager_wall": eager, "ratio": eager / wall, "host": host}
    numbers |= {"host_next": following(engine.replay, engine.device, times)} | parts(engine, times)
    if engine.device.type == "cuda":
        numbers["replay_device"] = device_time(engine.replay, max(5, times // 10))
    return numbers


def main() -> None:
    """Time a step of every spec given and print a row each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", nargs="*", default=["deepseek-v3-fp8"], help="library names or spec files")
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--length", type=int, default=4096, help="tokens stored before the steps")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    rows = []
    for spec in given.spec:
        with torch.no_grad():
            engine = Engine(spec, device, given.sequences, given.length, given.steps * 5)
            numbers = measure(engine, given.steps)
        fixed = {"spec": spec, "layers": len(engine.layers), "sequences": given.sequences, "length": given.length}
        rows.append({**fixed, **{k: round(v, 2) for k, v in numbers.items()}, "gpu": gpu, "torch": torch.__version__})
        print("  ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    if given.out:
        with given.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        print(f"wrote {given.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
