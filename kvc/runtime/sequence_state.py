"""What the manager knows of a sequence beside its slot tables."""

from dataclasses import dataclass, field

from kvc.plan.types import Lifecycle
from kvc.runtime.out_of_pages import SequenceId
from kvc.runtime.prefix_chain import PrefixChain
from kvc.specs.resolved import Domain


@dataclass(slots=True)
class SequenceState:
    """``ends``: per lifecycle, the first page not looked at yet; ``stale``: the pages before it that were released.

    ``scheduled`` tokens are of the open step; of the ``committed`` ones, the device may still take back the last
    ``unsettled``. ``running``: the domains of the open step; ``missed``: domains that did not see every token, so that
    they can see no later one. ``chain``: its tokens, None where nobody said what they are. ``quiet``: up to this length
    the sequence takes no page and gives none back, 0 where nobody has looked.
    """

    id: SequenceId
    row: int
    ends: list[int]
    stale: list[int]
    committed: int = 0
    scheduled: int = 0
    unsettled: int = 0
    running: frozenset[Domain] = frozenset()
    missed: set[Domain] = field(default_factory=set)
    chain: PrefixChain | None = None
    quiet: int = 0

    @property
    def lowest(self) -> int:
        """The lowest length that the device may correct to: what is read at it is kept."""
        return self.committed - self.unsettled

    def keeps(self, cycle: Lifecycle) -> bool:
        """Whether the lifecycle's layers saw all tokens, so that their pages are of use."""
        return cycle.domain not in self.missed
