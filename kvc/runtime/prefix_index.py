"""Which whole committed pages can be found again by the tokens that they hold, and how long a prefix they make.

A page's name is the key of its block in the hash chain, its lifecycle and its place in the block; a block is the
fewest tokens that are whole pages of every lifecycle. A prefix can be reused at a length at which **every** lifecycle
still holds each page that is not stale there, so a longer prefix may be reusable where a shorter one is not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from math import lcm
from typing import NamedTuple

import numpy as np

from kvc.plan.stale import holds_tokens, live_pages, page_limit
from kvc.plan.types import Lifecycle
from kvc.runtime.prefix_chain import PrefixChain
from kvc.runtime.shared_slots import SharedSlots


class PageName(NamedTuple):
    """``page`` counts from the start of the block that ``key`` stands for."""

    key: bytes
    lifecycle: int
    page: int


@dataclass(frozen=True)
class Reuse:
    """The answer to a request's token ids: how many of them need not be computed.

    ``history_tokens``: as many as the histories alone hold (lifecycles that keep every page); ``why`` says what kept
    ``tokens`` from being as many, empty where nothing did.
    """

    tokens: int
    history_tokens: int
    why: str = ""


@dataclass(frozen=True)
class PrefixStatistics:
    """Sums over all lookups; the difference of the two rates is what windows and twins cost."""

    lookups: int = 0
    requested_tokens: int = 0
    hit_tokens: int = 0
    history_tokens: int = 0

    @property
    def hit_rate(self) -> float:
        """Reused tokens of those asked for; 0 before the first lookup."""
        return self.hit_tokens / max(1, self.requested_tokens)

    @property
    def history_hit_rate(self) -> float:
        """What it would be if only the histories had to hold their pages."""
        return self.history_tokens / max(1, self.requested_tokens)

    def __str__(self) -> str:
        return (
            f"{self.hit_rate:.1%} of {self.requested_tokens:,} tokens reused in {self.lookups:,} lookups, "
            f"{self.history_hit_rate:.1%} by the history alone"
        )

    def plus(self, requested: int, reuse: Reuse) -> "PrefixStatistics":
        """The sums with one lookup more."""
        return PrefixStatistics(
            self.lookups + 1,
            self.requested_tokens + requested,
            self.hit_tokens + reuse.tokens,
            self.history_tokens + reuse.history_tokens,
        )


class PrefixIndex:
    """Names the pages of sequences whose tokens are known, and finds them for others; ``groups`` hold the names."""

    def __init__(self, lifecycles: Sequence[Lifecycle], groups: Sequence[SharedSlots]) -> None:
        self._lifecycles, self._groups = lifecycles, groups
        self._paged = [cycle for cycle in lifecycles if holds_tokens(cycle.coverage)]
        self._full = [cycle for cycle in self._paged if page_limit(cycle.coverage, 1) is None]
        self._states = [cycle for cycle in lifecycles if cycle not in self._paged]
        # A row of a draft layer may depend on the token after it.
        self._ahead = int(any(cycle.domain == "draft" for cycle in lifecycles))
        self.tokens_per_block = lcm(*(cycle.tokens_per_page for cycle in self._paged))

    def chain(self, salt: bytes) -> PrefixChain:
        """The chain of a sequence of which no token is known yet."""
        return PrefixChain(self.tokens_per_block, salt)

    def last_prefix(self, length: int) -> int:
        """The longest prefix of ``length`` tokens that can be reused for the same tokens.

        A step keeps what is live there, so that a prompt of one chunk can be found again: with lifecycles whose page is
        a block (`is_block`), never more pages than the plan counts for a window that starts anywhere in a page.
        """
        return max(0, length - 1) // self.tokens_per_block * self.tokens_per_block

    def is_block(self, cycle: Lifecycle) -> bool:
        """Whether a page of the lifecycle is as long as a block."""
        return cycle.tokens_per_page == self.tokens_per_block

    def longest(self, chain: PrefixChain) -> Reuse:
        """The longest prefix of whole blocks that can be reused and leaves a token to compute."""
        blocks = self.last_prefix(chain.tokens) // self.tokens_per_block
        most = min((self._whole(cycle, chain, blocks) for cycle in self._full), default=blocks)
        usable = {cycle.id: self._usable(cycle, chain, most) for cycle in self._lifecycles if cycle not in self._full}
        found = max(count for count in range(most + 1) if all(at[count] for at in usable.values()))
        chain.offered = found  # they are in the index
        history = most if self._full else found
        lacking = [self._lifecycles[cycle] for cycle, at in usable.items() if not at[history]]
        tokens, most_tokens = found * self.tokens_per_block, history * self.tokens_per_block
        return Reuse(tokens, most_tokens, self._why(most_tokens, lacking))

    def pages(self, cycle: Lifecycle, chain: PrefixChain, length: int) -> tuple[list[int], list[int]]:
        """The live pages of a lifecycle at a length that `longest` found, and their slots."""
        pages = [page for part in live_pages(cycle.coverage, length, cycle.tokens_per_page) for page in part]
        slots = [self._find(cycle, chain, page) for page in pages]
        return pages, [slot for slot in slots if slot is not None]

    def offer(self, chain: PrefixChain, tables: np.ndarray, committed: int, again: bool = False) -> None:
        """Name the pages in a sequence's tables, int32 ``[lifecycles, width]``, that became whole since last time.

        ``again``: those too for which another sequence's page was there, which may be gone by now.
        """
        known = self._known(chain, committed)
        refused, chain.refused = (chain.refused, []) if again else ([], chain.refused)
        for cycle, page in (*refused, *self._pages_between(chain.offered, known)):
            if tables[cycle, page] >= 0 and not self._name_slot(cycle, chain, page, int(tables[cycle, page])):
                chain.refused.append((cycle, page))
        chain.offered = max(chain.offered, known)

    def has_new(self, chain: PrefixChain, committed: int) -> bool:
        """Whether `offer` would find pages that became whole."""
        return self._known(chain, committed) > chain.offered

    def _known(self, chain: PrefixChain, committed: int) -> int:
        return min(committed, chain.tokens - self._ahead) // self.tokens_per_block

    def _pages_between(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Lifecycle and page of the blocks from ``start`` to ``stop``."""
        for cycle in self._paged:
            count = self._pages_of_block(cycle)
            yield from ((cycle.id, page) for page in range(start * count, stop * count))

    def _name_slot(self, lifecycle: int, chain: PrefixChain, page: int, slot: int) -> bool:
        cycle = self._lifecycles[lifecycle]
        return self._groups[cycle.pool_group].name(slot, self._name(cycle, chain, page))

    def _pages_of_block(self, cycle: Lifecycle) -> int:
        return self.tokens_per_block // cycle.tokens_per_page

    def _name(self, cycle: Lifecycle, chain: PrefixChain, page: int) -> PageName:
        block, place = divmod(page, self._pages_of_block(cycle))
        key = chain.key_with_next(block) if cycle.domain == "draft" else chain.keys[block]
        return PageName(key, cycle.id, place)

    def _find(self, cycle: Lifecycle, chain: PrefixChain, page: int) -> int | None:
        return self._groups[cycle.pool_group].find(self._name(cycle, chain, page))

    def _whole(self, cycle: Lifecycle, chain: PrefixChain, blocks: int) -> int:
        """How many blocks from the start are held whole, at most ``blocks``."""
        count = self._pages_of_block(cycle)
        held = (self._find(cycle, chain, page) is not None for page in range(blocks * count))
        return sum(takewhile(bool, held)) // count

    def _usable(self, cycle: Lifecycle, chain: PrefixChain, blocks: int) -> list[bool]:
        """For each number of blocks up to ``blocks``, whether this lifecycle holds what it needs there."""
        if cycle in self._states:
            return [True] + [False] * blocks
        missing = (self._find(cycle, chain, page) is None for page in range(blocks * self._pages_of_block(cycle)))
        gaps = list(accumulate((page if gone else -1 for page, gone in enumerate(missing)), max))
        lengths = range(0, blocks * self.tokens_per_block + 1, self.tokens_per_block)
        parts = (live_pages(cycle.coverage, length, cycle.tokens_per_page) for length in lengths)
        return [all(_unbroken(gaps, pages) for pages in both) for both in parts]

    def _why(self, most: int, lacking: Sequence[Lifecycle]) -> str:
        if self._states:
            cycle = self._states[0]
            return f"lifecycle {cycle.id} ({cycle.coverage}) keeps a state, which no prefix can be cut from"
        names = ", ".join(f"lifecycle {cycle.id} ({cycle.coverage})" for cycle in lacking)
        return f"at {most} tokens pages are missing of {names}" if lacking else ""


def _unbroken(gaps: Sequence[int], pages: range) -> bool:
    """Whether all of ``pages`` are held; ``gaps``: for each page the last one up to it that is not."""
    return not pages or gaps[pages[-1]] < pages[0]
