"""What an attached model sees as its cache: transformers' interface outside, steps of a kvc cache inside.

transformers hands each layer's new K and V to ``Cache.update`` and then calls the attention function. Here ``update``
passes them through, and the attention function gives them to kvc, which stores and reads them.
"""

import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import Cache as TransformersCache
from transformers.cache_utils import CacheLayerMixin

from kvc.diagnostics import KvcError, fail
from kvc.graphs.program import Phase
from kvc.integrations.transformers.packing import Packing, pack
from kvc.runtime.batch import Request

_SEQUENCE_NUMBERS = itertools.count()


@dataclass(frozen=True)
class ForwardCall:
    """What one forward of the base model was asked for; ``mask`` and ``positions`` as the caller gave them, or None."""

    batch: int
    length: int
    mask: Tensor | None
    positions: Tensor | None


@dataclass(frozen=True)
class OpenStep:
    """A step in progress; ``step`` is None where no token of the batch is real."""

    step: Any
    packing: Packing


class StepCache(TransformersCache, ABC):
    """The part that every cache of an attached model shares: refusals, and one kvc step a forward."""

    def __init__(self, kvc_cache: Any, num_layers: int) -> None:
        super().__init__(layers=[_Layer(self) for _ in range(num_layers)])
        self.kvc_cache = kvc_cache
        self.columns = 0  # tokens of the batch seen so far, padding included: what transformers calls its length

    @abstractmethod
    def requests(self, call: ForwardCall) -> tuple[list[Request], Packing]:
        """The requests of a forward, context before generation, and where their tokens are in the batch."""

    def open(self, call: ForwardCall) -> OpenStep:
        """Begin the kvc step of a forward; raises KvcError where kvc cannot serve it, `OutOfPages` among them."""
        requests, packing = self.requests(call)
        return OpenStep(self.kvc_cache.begin(requests) if requests else None, packing)

    def close(self, opened: OpenStep, call: ForwardCall) -> None:
        """Commit the step: every token of it is accepted."""
        if opened.step is not None:
            self.kvc_cache.commit(opened.step)
        self.columns += call.length

    def abort(self, opened: OpenStep) -> None:
        """Undo a step whose forward failed: none of its tokens is accepted."""
        if opened.step is not None:
            self.kvc_cache.abort(opened.step)

    def reorder_cache(self, beam_idx: Tensor) -> NoReturn:
        """Refused: KVC611."""
        raise _refusal("KVC611", "beam search moves sequences inside the cache", "num_beams=1 (greedy or sampling)")

    def batch_repeat_interleave(self, repeats: int) -> NoReturn:
        """Refused: KVC611."""
        raise _refusal("KVC611", "copying sequences inside the cache", "repeat the prompts in the batch")

    def batch_select_indices(self, indices: Tensor) -> NoReturn:
        """Refused: KVC611."""
        raise _refusal("KVC611", "dropping sequences inside a batch", "the runner, which releases them one by one")

    def crop(self, tokens_to_remove: int) -> NoReturn:
        """Refused: KVC612."""
        raise _refusal("KVC612", "cutting tokens off the cache", "a new cache, and the prompt up to the cut")

    def activate_past_recording(self) -> NoReturn:
        """Refused: KVC612; assisted decoding announces itself by this call."""
        raise _refusal("KVC612", "assisted decoding takes back drafted tokens", "generate() without an assistant model")


def _refusal(code: str, what: str, instead: str) -> KvcError:
    return fail(code, f"a kvc cache does not support this: {what}", help=f"use {instead}")


class _Layer(CacheLayerMixin):
    """One layer as transformers sees it; all state is the owner's."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, owner: StepCache) -> None:
        super().__init__()
        self._owner = weakref.ref(owner)

    @property
    def _cache(self) -> StepCache:
        owner = self._owner()
        assert owner is not None, "a layer does not outlive its cache"
        return owner

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the pools exist already."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """This step's own K and V as they came; the attention function stores them."""
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(length with this forward, offset)."""
        return self._cache.columns + query_length, 0

    def get_seq_length(self) -> int:
        """Columns of the batch so far, padding included."""
        return self._cache.columns

    def get_max_length(self) -> int:
        """-1: the limit is the pool's, and running into it is a finding."""
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5.20

    def reset(self) -> None:
        """Nothing to do: the owner releases its sequences."""


class GenerateCache(StepCache):
    """The cache of one ``generate()`` call, or of forwards that continue each other: a sequence a row of the batch.

    Tokens whose mask is 0 are neither stored nor attended to. A forward of one token a row is a generation step, a
    longer one a context step.
    """

    def __init__(self, kvc_cache: Any, num_layers: int) -> None:
        super().__init__(kvc_cache, num_layers)
        self.sequences: list[str] = []
        self._seen: Tensor | None = None  # bool [B, columns]: which tokens are stored
        self._release = weakref.finalize(self, _release_all, kvc_cache, self.sequences)

    def requests(self, call: ForwardCall) -> tuple[list[Request], Packing]:
        """One request for every row with a real token."""
        real = self._real_tokens(call)
        self._check_positions(call, real)
        self._admit(call.batch)
        phase: Phase = "generation" if call.length == 1 else "context"
        counts = real.sum(1).tolist()
        found = [
            Request(name, tokens=int(count), phase=phase)
            for name, count in zip(self.sequences, counts, strict=True)
            if count
        ]
        return found, pack(real)

    def close(self, opened: OpenStep, call: ForwardCall) -> None:
        """Commit, and remember which columns hold tokens."""
        real = self._split_mask(call)[1]
        super().close(opened, call)
        self._seen = real if self._seen is None else torch.cat([self._seen, real], dim=1)

    def reset(self) -> None:
        """Release every sequence; the cache is as new."""
        _release_all(self.kvc_cache, self.sequences)
        self.columns, self._seen = 0, None

    def _admit(self, batch: int) -> None:
        if not self.sequences:
            names = [f"generate-{next(_SEQUENCE_NUMBERS)}" for _ in range(batch)]
            for name in names:
                self.kvc_cache.admit(name)
                self.sequences.append(name)
        elif len(self.sequences) != batch:
            raise fail(
                "KVC618",
                f"this cache holds {len(self.sequences)} sequences and the batch has {batch}",
                help="use a new cache for another batch",
            )

    def _split_mask(self, call: ForwardCall) -> tuple[Tensor, Tensor]:
        """The mask, bool, of the columns seen before and of this forward's; all true where there is no mask."""
        if call.mask is None:
            seen = self._seen if self._seen is not None else torch.ones(call.batch, 0, dtype=torch.bool)
            return seen, torch.ones(call.batch, call.length, dtype=torch.bool)
        mask = call.mask.to("cpu", torch.bool)
        return mask[:, : self.columns], mask[:, self.columns :]

    def _real_tokens(self, call: ForwardCall) -> Tensor:
        """Bool ``[B, T]`` of this forward; raises KvcError KVC615 for a mask that kvc cannot follow."""
        if call.mask is not None and tuple(call.mask.shape) != (call.batch, self.columns + call.length):
            raise _mask_refusal(f"its shape is {list(call.mask.shape)}, not {[call.batch, self.columns + call.length]}")
        seen, real = self._split_mask(call)
        if self._seen is not None and not torch.equal(seen, self._seen):
            raise _mask_refusal("it hides tokens that are stored already, or shows padding that is not")
        return real

    def _check_positions(self, call: ForwardCall, real: Tensor) -> None:
        """Positions that the caller gives must be those that kvc counts: the index of a token in its sequence."""
        if call.positions is None:
            return
        before = 0 if self._seen is None else self._seen.sum(1, keepdim=True)
        counted = real.cumsum(1) - 1 + before
        given = call.positions.to("cpu").expand(real.shape)
        # Without a mask or with one that hides nothing transformers counts columns, which is the same.
        if not torch.equal(given[real], counted[real]):
            raise fail(
                "KVC616",
                "position_ids differ from the places of the tokens in their sequences",
                help="leave position_ids out: kvc counts the tokens that the attention mask shows",
            )


def _mask_refusal(why: str) -> KvcError:
    help = "pass the 2-D mask [batch, tokens so far] of the whole sequence, or none"
    return fail("KVC615", f"kvc cannot follow this attention mask: {why}", help=help)


def _release_all(kvc_cache: Any, sequences: list[str]) -> None:
    while sequences:
        kvc_cache.release(sequences.pop())


class PackedCache(StepCache):
    """The cache of one forward over tokens ``[1, T]`` of several sequences; the runner makes one a step."""

    def __init__(self, kvc_cache: Any, num_layers: int, requests: Sequence[Request]) -> None:
        super().__init__(kvc_cache, num_layers)
        self._requests = list(requests)

    def requests(self, call: ForwardCall) -> tuple[list[Request], Packing]:
        """The requests it was made with; their tokens are all real and already in order."""
        return self._requests, Packing(call.batch, call.length)
