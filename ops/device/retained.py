"""Which rows are read from a twin, on the device: `kvc.ops.retained.Retained.covers`."""

# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def is_retained(position, committed, FIRST: tl.constexpr, LAST: tl.constexpr, PAGES: tl.constexpr, S: tl.constexpr):
    """Whether positions are among the first and last tokens at committed lengths; in whole pages of S if ``PAGES``."""
    start = committed - LAST
    if PAGES:
        page = position // S
        # A start below 0 lies in page -1 or before: everything is retained, whatever way the division rounds.
        return (page < (FIRST + S - 1) // S) | (start < 0) | (page >= start // S)
    else:
        return (position < FIRST) | (position >= start)
