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


def _written(tokens: int, tokens_per_page: int, draft_tokens: int) -> int:
    return ceil_div(tokens + draft_tokens, tokens_per_page) if tokens else 0


def _chunk_held(coverage: Coverage, tokens: int, tokens_per_page: int, draft_tokens: int) -> int:
    """Most pages of any chunk so far: whole ones start at few places in a page, the last one may not be whole."""
    size = _window(coverage)
    whole, rest = divmod(tokens, size)
    places = min(whole, tokens_per_page // gcd(size, tokens_per_page))
    chunks = [(chunk * size, (chunk + 1) * size) for chunk in range(places)]
    chunks += [(whole * size, tokens)] if rest else []
    spans = ((stop - 1 + draft_tokens) // tokens_per_page - start // tokens_per_page + 1 for start, stop in chunks)
    return max(spans, default=0)


def _nothing_stale(coverage: Coverage, committed: int, tokens_per_page: int) -> range:
    return range(0)


@dataclass(frozen=True)
class _Rule:
    """``stale(coverage, committed, S)``; ``limit(coverage, S, draft)``: most pages held, None: grows without bound.

    ``held(coverage, tokens, S, draft)`` where a short sequence does not simply hold what it has written, up to the
    limit. ``of_tokens``: a page holds rows of its tokens, not a state after the last of them.
    """

    stale: Callable[[Coverage, int, int], range]
    limit: Callable[[Coverage, int, int], int] | None
    held: Callable[[Coverage, int, int, int], int] | None = None
    of_tokens: bool = True


def _states(tokens: int, number: int) -> int:
    """States are all there from the first token on."""
    return number if tokens else 0


_FULL = _Rule(_nothing_stale, None)
_WINDOW = _Rule(_window_stale, _window_limit)
_RULES = {
    "full": _FULL,
    "compressed": _FULL,  # a page of source tokens holds their compressed rows
    "window": _WINDOW,
    "first_last": _WINDOW,  # keep_first = first, window = last + 1
    "chunk": _Rule(_chunk_stale, _chunk_limit, _chunk_held),
    # A state for every token that may be rolled back, and one for the last that may not.
    "recurrent": _Rule(
        _nothing_stale,
        lambda coverage, tokens_per_page, draft: 1 + draft,
        lambda coverage, tokens, tokens_per_page, draft: _states(tokens, 1 + draft),
        of_tokens=False,
    ),
    # One allocation that rolls over: its tensors have room for drafted tokens.
    "rolling": _Rule(
        _nothing_stale,
        lambda coverage, tokens_per_page, draft: 1,
        lambda coverage, tokens, tokens_per_page, draft: _states(tokens, 1),
        of_tokens=False,
    ),
}


def stale_pages(coverage: Coverage, committed: int, tokens_per_page: int) -> range:
    """Pages to release (table entry -1) once ``committed`` tokens are stored and the token at that position is next.

    KeyError for a coverage that has no rule.
    """
    return _RULES[coverage.kind].stale(coverage, committed, tokens_per_page)


def live_pages(coverage: Coverage, committed: int, tokens_per_page: int) -> tuple[range, range]:
    """Pages of ``committed`` tokens that are not stale: those before the stale ones, those after them."""
    stale, end = stale_pages(coverage, committed, tokens_per_page), ceil_div(committed, tokens_per_page)
    return range(min(stale.start, end)), range(min(max(stale.start, stale.stop), end), end)


def holds_tokens(coverage: Coverage) -> bool:
    """Whether a page holds rows of its own tokens; False: a state, which stands for one length alone."""
    return _RULES[coverage.kind].of_tokens


def held_pages(coverage: Coverage, tokens: int, tokens_per_page: int, draft_tokens: int = 0) -> int:
    """Most pages that a sequence holds while the last of its ``tokens`` and ``draft_tokens`` more are in flight.

    KeyError for a coverage that has no rule.
    """
    rule = _RULES[coverage.kind]
    if rule.held is not None:
        return rule.held(coverage, tokens, tokens_per_page, draft_tokens)
    written = _written(tokens, tokens_per_page, draft_tokens)
    return written if rule.limit is None else min(written, rule.limit(coverage, tokens_per_page, draft_tokens))


def page_limit(coverage: Coverage, tokens_per_page: int, draft_tokens: int = 0) -> int | None:
    """`held_pages` of a sequence of any length; None where they grow without bound (slope).

    KeyError for a coverage that has no rule.
    """
    limit = _RULES[coverage.kind].limit
    return None if limit is None else limit(coverage, tokens_per_page, draft_tokens)
