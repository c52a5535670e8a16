"""Whole decode steps of a model, captured once a bucket and replayed: prologue, every layer, logits."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from kvc import compat
from kvc.integrations.transformers.caches import ForwardCall, OpenStep, StepCache
from kvc.integrations.transformers.packing import Packing
from kvc.runtime.batch import Request, Step
from kvc.runtime.capture import Bucket, capture_inputs, replay_bucket
from kvc.runtime.graph_runner import GraphRunner


class CapturedDecode:
    """Decode steps of one token a sequence on fixed memory.

    What changes between replays is the packed step buffer and the token ids; weights, pools and constants stay where
    they are.
    """

    def __init__(self, model: Any, kvc_cache: Any, num_layers: int) -> None:
        self.model, self.kvc_cache, self.num_layers = model, kvc_cache, num_layers
        self._graphs = GraphRunner()
        self._cache_name = compat.cache_argument(model)

    @property
    def buckets(self) -> tuple[int, ...]:
        """Buckets captured so far, in sequences."""
        return tuple(int(sequences) for sequences, *_ in cast(tuple[Bucket, ...], self._graphs.buckets))

    def capture(self, bucket: int) -> None:
        """Record a decode step of ``bucket`` sequences, on padding, so that no page is written.

        KVC526 where the program's capture plan does not have it, KVC52x where the model breaks the contract.
        """
        ids = torch.zeros(1, bucket, dtype=torch.int64, device=self.model.device)
        inputs = capture_inputs(self.kvc_cache, (bucket, 1))
        step = self.kvc_cache.padding_step(bucket, prologue=False)
        static, copied = self._weights() | inputs.static, {"ids": ids, **inputs.copied}
        try:
            self._graphs.capture(step.bucket, lambda: self.forward(step, ids), static, copied)
        finally:
            self.kvc_cache.abort(step)

    def replay(self, requests: Sequence[Request], ids: Sequence[int]) -> Tensor:
        """Logits ``[len(ids), vocabulary]`` of a generation step of a captured bucket, valid until the next replay.

        KVC525 or KVC526 for a step of another bucket, of several tokens a sequence or with context requests.
        """
        step = self.kvc_cache.begin(requests, prologue=False)
        try:
            bucket = replay_bucket(self.kvc_cache, step)
            copied = self._graphs.copied(bucket)
            padding = [0] * (copied["ids"].shape[1] - len(ids))
            copied["ids"].copy_(torch.tensor([[*ids, *padding]]), non_blocking=True)
            logits = self._graphs.replay(bucket, copied)
        except BaseException:
            self.kvc_cache.abort(step)
            raise
        self.kvc_cache.commit(step)
        return logits[: len(ids)]

    def forward(self, step: Step, ids: Tensor) -> Tensor:
        """What is captured: prologue and model over ids ``[1, bucket]`` of an open step; logits ``[bucket, V]``."""
        self.kvc_cache.prologue(step)
        cache = _OpenCache(self.kvc_cache, self.num_layers, step)
        # Positions are kvc's: the model's own are not read, and would be made from a host number here.
        out = self.model(input_ids=ids, position_ids=torch.zeros_like(ids), use_cache=True, **{self._cache_name: cache})
        return out.logits[0]

    def _weights(self) -> dict[str, Tensor]:
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}


class _OpenCache(StepCache):
    """The cache of a forward whose step somebody else began and will end; its tokens are padded to the bucket."""

    def __init__(self, kvc_cache: Any, num_layers: int, step: Step) -> None:
        super().__init__(kvc_cache, num_layers)
        self._step = step

    def requests(self, call: ForwardCall) -> tuple[list[Request], Packing]:
        """The step's own; padding rows are rows of the batch too."""
        return list(self._step.requests), Packing(call.batch, call.length)

    def open(self, call: ForwardCall) -> OpenStep:
        """The step that is open already."""
        return OpenStep(self._step, self.requests(call)[1])

    def close(self, opened: OpenStep, call: ForwardCall) -> None:
        """Left to whoever began the step."""

    def abort(self, opened: OpenStep) -> None:
        """Left to whoever began the step."""
