"""Median time of every kvc:: op on this CPU, over the cases of its `bench.py`.

    python benchmarks/ops.py [--only NAME] [--seconds 0.5]

Prints one line a case: the median of the calls, the fastest one, and what the checks of shapes and dtypes cost.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # works from a checkout that is not installed

from kvc.ops import OPS
from kvc.ops.codecs.operators import CODEC_OPS
from kvc.ops.example_inputs import Shape

CODECS = {op.name for op in CODEC_OPS}


def cases(name: str) -> dict[str, Shape]:
    """Named shapes that an op is timed at."""
    folder = "codecs" if name in CODECS else name
    return import_module(f"kvc.ops.{folder}.bench").CASES


def times(call: Callable[[], object], seconds: float) -> list[float]:
    """Microseconds of each call, for about that long and at least five calls."""
    call()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        found.append((time.perf_counter() - start) * 1e6)
    return found


def main() -> None:
    """Run the benchmarks and print a row each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="ops whose name contains this")
    parser.add_argument("--seconds", type=float, default=0.5, help="time a case")
    options = parser.parse_args()
    # One large block, freed: glibc then keeps freed memory of this size, as in any process that has run a model.
    # Without it every call pays page faults for its temporaries, several times its own work.
    torch.ones(31 << 20, dtype=torch.uint8)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; microseconds")
    print(f"{'op':18}{'case':42}{'median':>12}{'fastest':>12}{'checks':>9}")
    for name in (name for name in OPS if options.only in name):
        for case, shape in cases(name).items():
            args, kwargs = OPS[name].example(shape)
            whole = times(lambda: OPS[name].overload(*args, **kwargs), options.seconds)  # noqa: B023
            checks = times(lambda: OPS[name].check(*args, **kwargs), options.seconds / 10)  # noqa: B023
            numbers = f"{statistics.median(whole):12.1f}{min(whole):12.1f}{statistics.median(checks):9.1f}"
            print(f"{name:18}{case:42}{numbers}")


if __name__ == "__main__":
    main()
