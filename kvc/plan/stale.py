"""Which pages of a sequence a coverage still needs: the one rule that the plan and the runtime's manager share.

Lengths are in tokens, pages are those of the sequence (0 is its first). A new coverage is one entry in `_RULES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from kvc.specs.resolved import Coverage


def ceil_div(numerator: int, denominator: int) -> int:
    """The quotient rounded up."""
    return -(-numerator // denominator)


def _kept_first(coverage: Coverage, tokens_per_page: int) -> int:
    return ceil_div(coverage.keep_first, tokens_per_page)


def _window(coverage: Coverage) -> int:
    if coverage.window is None:
        raise ValueError(f"coverage {coverage.kind!r} needs a window")
    return coverage.window


def _window_stale(coverage: Coverage, committed: int, tokens_per_page: int) -> range:
    """Pages after the kept first ones that lie wholly before the window of the token at ``committed``, in flight."""
    start = _kept_first(coverage, tokens_per_page)
    return range(start, max(start, (committed + 1 - _window(coverage)) // tokens_per_page))


def _window_limit(coverage: Coverage, tokens_per_page: int, draft_tokens: int) -> int:
    """The kept first pages and those that W - 1 rows and the rows that may be rolled back can touch."""
    rows = _window(coverage) - 1 + draft_tokens
    return _kept_first(coverage, tokens_per_page) + ceil_div(rows, tokens_per_page) + 1


def _chunk_stale(coverage: Coverage, committed: int, tokens_per_page: int) -> range:
    """Pages wholly before the chunk of the token at ``committed``."""
    start = committed // _window(coverage) * _window(coverage)
    return range(start // tokens_per_page)


def _chunk_limit(coverage: Coverage, tokens_per_page: int, draft_tokens: int) -> int:
    """Pages that a whole chunk and drafted tokens after it can touch, from where a chunk starts latest in a page."""
    latest = tokens_per_page - gcd(_window(coverage), tokens_per_page)
    return (latest + _window(coverage) - 1 + draft_tokens) // tokens_per_page + 1


def _nothing_stale(coverage: Coverage, committed: int, tokens_per_page: int) -> range:
    return range(0)


@dataclass(frozen=True)
class _Rule:
    """``stale(coverage, committed, S)``; ``limit(coverage, S, draft)``: most pages held, None: grows without bound.

    ``paged``: pages are of tokens, so short sequences hold fewer; otherwise of states, all there from the first token.
    """

    stale: Callable[[Coverage, int, int], range]
    limit: Callable[[Coverage, int, int], int] | None
    paged: bool = True


_FULL = _Rule(_nothing_stale, None)
_WINDOW = _Rule(_window_stale, _window_limit)
_RULES = {
    "full": _FULL,
    "compressed": _FULL,  # a page of source tokens holds their compressed rows
    "window": _WINDOW,
    "first_last": _WINDOW,  # keep_first = first, window = last + 1
    "chunk": _Rule(_chunk_stale, _chunk_limit),
    # A state for every token that may be rolled back, and one for the last that may not.
    "recurrent": _Rule(_nothing_stale, lambda coverage, tokens_per_page, draft: 1 + draft, paged=False),
    # One allocation that rolls over: its tensors have room for drafted tokens.
    "rolling": _Rule(_nothing_stale, lambda coverage, tokens_per_page, draft: 1, paged=False),
}


def stale_pages(coverage: Coverage, committed: int, tokens_per_page: int) -> range:
    """Pages to release (table entry -1) once ``committed`` tokens are stored and the token at that position is next.

    KeyError for a coverage that has no rule.
    """
    return _RULES[coverage.kind].stale(coverage, committed, tokens_per_page)


def held_pages(coverage: Coverage, tokens: int, tokens_per_page: int, draft_tokens: int = 0) -> int:
    """Most pages that a sequence holds while the last of its ``tokens`` and ``draft_tokens`` more are in flight.

    KeyError for a coverage that has no rule.
    """
    limit = page_limit(coverage, tokens_per_page, draft_tokens)
    written = ceil_div(tokens + draft_tokens, tokens_per_page) if tokens else 0
    if limit is None:
        return written
    return min(written, limit) if _RULES[coverage.kind].paged or not tokens else limit


def page_limit(coverage: Coverage, tokens_per_page: int, draft_tokens: int = 0) -> int | None:
    """`held_pages` of a sequence of any length; None where they grow without bound (slope).

    KeyError for a coverage that has no rule.
    """
    limit = _RULES[coverage.kind].limit
    return None if limit is None else limit(coverage, tokens_per_page, draft_tokens)
