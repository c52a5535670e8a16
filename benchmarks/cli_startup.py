"""Time of `kvc check`, `kvc plan` and `kvc compile` in cold processes, and whether they load torch.

    python benchmarks/cli_startup.py [SPEC] [--runs 9] [--csv]

Prints the median and the fastest of ``--runs`` processes a command; ``--csv`` appends them to
`benchmarks/results/cli_startup.csv`. A bare interpreter and `import torch` are timed beside them: what no program in
Python, or with torch, can undercut. The deep variant is the spec with 3,200 layers.
"""

import argparse
import csv
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "cli_startup.csv"
DEEP = 3200  # layers of the deep variant
HEAVY = ("torch", "triton", "transformers")
Row = dict[str, object]

# Runs `kvc ARGS...` as the installed script does, then says on stderr what heavy modules it left loaded.
_PROBE = f"""\
import sys
try:
    from kvc.cli import main
    main()
finally:
    print(*[name for name in {HEAVY} if name in sys.modules], sep=",", file=sys.stderr)
"""


def run_once(code: str, arguments: Sequence[str]) -> tuple[float, str]:
    """Seconds of one cold interpreter on ``code`` and what it wrote to stderr last; RuntimeError where it fails."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"kvc {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return seconds, done.stderr.strip().rpartition("\n")[2]


def measure(name: str, code: str, arguments: Sequence[str], runs: int) -> Row:
    """One row: the command, its median and fastest time in milliseconds, and the heavy modules it loaded."""
    results = [run_once(code, arguments) for _ in range(runs)]
    times = [seconds * 1e3 for seconds, _ in results]
    return {
        "command": name,
        "runs": runs,
        "median_ms": f"{statistics.median(times):.0f}",
        "fastest_ms": f"{min(times):.0f}",
        "heavy_modules": " ".join(sorted({modules for _, modules in results} - {""})) or "none",
    }


def machine() -> Row:
    """When, where and with what the rows were measured."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()} {os.cpu_count()} cores",
        "python": platform.python_version(),
    }


def append_csv(rows: Sequence[Row]) -> None:
    """Add rows to the results, with a header where the file is new."""
    fresh = not RESULTS.exists()
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


def commands(spec: str, folder: Path) -> Iterator[tuple[str, str, Sequence[str]]]:
    """(name, code, arguments) of every process to time; artifacts and the deep variant go to ``folder``."""
    yield "python", "", ()
    yield "python: import torch", "import torch", ()
    deep = folder / f"{spec}-{DEEP}.yaml"
    text = (ROOT / "specs" / "library" / f"{spec}.yaml").read_text(encoding="utf-8")
    deep.write_text(re.sub(r"repeat: \d+", f"repeat: {DEEP}", text), encoding="utf-8")
    for command, more in (("check", ()), ("plan", ()), ("compile", ("-o", str(folder / "out"), "--force"))):
        yield f"kvc {command} {spec}", _PROBE, (command, spec, *more)
        yield f"kvc {command} {deep.stem}", _PROBE, (command, str(deep), *more)


def main() -> None:
    """Measure, print, and store when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", nargs="?", default="llama-3.1-8b-bf16")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--csv", action="store_true", help=f"append to {RESULTS.relative_to(ROOT)}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(*row, options.runs) for row in commands(options.spec, Path(folder))]
    line = "{command:36}  median {median_ms:>5} ms  fastest {fastest_ms:>5} ms  heavy modules: {heavy_modules}"
    print("\n".join(line.format(**row) for row in rows))
    if options.csv:
        append_csv([machine() | row for row in rows])


if __name__ == "__main__":
    main()
