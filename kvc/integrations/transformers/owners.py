"""Who answers for an attention module: all boundaries ask here, so a module that nobody attached is refused."""

from typing import Protocol
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from kvc.diagnostics import fail


class Attends(Protocol):
    """What owns attention modules."""

    def attend(self, layer: int, *inputs: Tensor) -> Tensor:
        """Inputs of the layer's kind ``[B, T, heads, dim]`` before RoPE (`gqa`: q, k, v) -> ``[B, T, H, V]``."""


_OWNERS: WeakKeyDictionary[nn.Module, Attends] = WeakKeyDictionary()


def claim(modules: list[nn.Module], owner: Attends) -> None:
    """Let ``owner`` answer for these attention modules."""
    _OWNERS.update((module, owner) for module in modules)


def disown(modules: list[nn.Module]) -> None:
    """Undo `claim`."""
    for module in modules:
        _OWNERS.pop(module, None)


def owner_of(module: nn.Module) -> Attends:
    """Who answers for ``module``; raises KvcError KVC610 where nobody does."""
    owner = _OWNERS.get(module)
    if owner is None:
        raise fail("KVC610", "this attention module is not attached to a kvc cache", help="call attach(model, ...)")
    return owner
