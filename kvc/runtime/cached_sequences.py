"""What a cache's caller does with sequences between steps."""

from kvc.runtime.cache_manager import CacheManager
from kvc.runtime.out_of_pages import SequenceId
from kvc.runtime.prefix_chain import TokenIds
from kvc.runtime.prefix_index import PrefixStatistics, Reuse


class CachedSequences:
    """Sequences of a cache: each call is the manager's own."""

    manager: CacheManager

    def admit(self, sequence: SequenceId) -> int:
        """Start a sequence; returns the tokens to recompute if it was preempted (`CacheManager.admit`)."""
        return self.manager.admit(sequence)

    def reuse(self, sequence: SequenceId, tokens: TokenIds, salt: str | bytes = b"") -> Reuse:
        """Start an admitted sequence with the longest held prefix of its token ids (`CacheManager.reuse`).

        The answer's ``tokens`` are committed already: the first request goes on after them.
        """
        return self.manager.reuse(sequence, tokens, salt)

    def record_tokens(self, sequence: SequenceId, tokens: TokenIds) -> None:
        """Say which tokens follow those given to `reuse` (`CacheManager.record_tokens`)."""
        self.manager.record_tokens(sequence, tokens)

    def prefix_statistics(self) -> PrefixStatistics:
        """What `reuse` has found so far (`CacheManager.prefix_statistics`)."""
        return self.manager.prefix_statistics()

    def preempt(self, sequence: SequenceId) -> int:
        """Free a sequence's pages and remember its length (`CacheManager.preempt`)."""
        return self.manager.preempt(sequence)

    def release(self, sequence: SequenceId) -> None:
        """Forget a sequence (`CacheManager.release`)."""
        self.manager.release(sequence)

    def rewind(self, sequence: SequenceId, length: int) -> None:
        """Take back all but a sequence's first ``length`` tokens (`CacheManager.rewind`)."""
        self.manager.rewind(sequence, length)
