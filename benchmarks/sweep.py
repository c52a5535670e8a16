"""The table and the plots of docs/sweep.md from the stored results of `kvc sweep`, without running a model.

python -m benchmarks.sweep
"""

import sys
from pathlib import Path

from kvc.report.sweep_plot import write_position_plot, write_tradeoff_plot
from kvc.report.sweep_results import ResultFiles
from kvc.report.sweep_table import sweep_table

HERE = Path(__file__).parent
IMAGES = HERE.parent / "docs" / "images"


def main() -> int:
    """Print the table and draw both plots."""
    found = ResultFiles(HERE / "results" / "sweep").found.values()
    rows = [one.row for one in found]
    print(sweep_table(rows, []))
    write_tradeoff_plot(rows, IMAGES / "sweep.png")
    write_position_plot(rows, {one.row.label: one.stretches for one in found}, IMAGES / "sweep-positions.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
