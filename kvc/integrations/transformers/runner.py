"""Continuous batching on a transformers model: packed steps over sequences of different lengths."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kvc import compat
from kvc.diagnostics import fail
from kvc.graphs.program import Phase
from kvc.integrations.transformers.caches import PackedCache
from kvc.integrations.transformers.captured import CapturedDecode
from kvc.runtime.batch import Request, next_bucket
from kvc.runtime.out_of_pages import SequenceId


class Runner:
    """Runs steps of an attached model; sequences come and go between steps.

    A sequence's tokens are a generation request where there is one and the sequence has tokens already, a context
    request otherwise; prompts may be given in chunks of any size.

        runner.admit("a")
        logits = runner.step({"a": prompt_ids})["a"]
        logits = runner.step({"a": [int(logits.argmax())], "b": other_prompt})
    """

    def __init__(self, model: Any, kvc_cache: Any, num_layers: int) -> None:
        self.model, self.kvc_cache, self.num_layers = model, kvc_cache, num_layers
        self.lengths: dict[SequenceId, int] = {}  # tokens stored, by sequence
        self._cache_name = compat.cache_argument(model)
        self._captured = CapturedDecode(model, kvc_cache, num_layers)

    @property
    def max_tokens(self) -> int:
        """Tokens of one step at most."""
        return self.kvc_cache.limits.max_tokens

    @torch.inference_mode()
    def capture(self, buckets: Sequence[int] | None = None) -> None:
        """Capture decode steps of these buckets (default: the program's); `step` then replays them.

        A step of one token a sequence and no context is padded to its bucket and replayed; every other step runs as
        before. Raises KvcError KVC52x where the model breaks the capture contract.
        """
        for bucket in buckets or self.kvc_cache.program.buckets:
            self._captured.capture(bucket)

    def admit(self, sequence: SequenceId) -> None:
        """Start a sequence; raises KvcError KVC502 if there is one of that name, KVC503 over ``max_sequences``."""
        self.kvc_cache.admit(sequence)
        self.lengths[sequence] = 0

    def release(self, sequence: SequenceId) -> None:
        """End a sequence and free its pages."""
        self.kvc_cache.release(sequence)
        del self.lengths[sequence]

    @torch.inference_mode()
    def step(self, tokens: Mapping[Any, Sequence[int]], *, all_logits: bool = False) -> dict[SequenceId, Tensor]:
        """Run one forward over the next token ids of some sequences.

        Returns each sequence's logits after its last token, ``[vocabulary]``, or with ``all_logits`` after every one,
        ``[n, vocabulary]``. Raises `OutOfPages` (nothing has changed then) and KvcError KVC501 for a sequence that was
        not admitted.
        """
        requests = self._requests(tokens)
        ids = [token for request in requests for token in tokens[request.id]]
        positions = [p for r in requests for p in range(self.lengths[r.id], self.lengths[r.id] + r.tokens)]
        spans = self._spans(requests)
        if self._is_captured(requests):
            logits = self._captured.replay(requests, ids).clone()
        else:
            last = [stop - 1 for _, stop in spans.values()]
            logits = self._forward(requests, ids, positions, 0 if all_logits else last)
        for request in requests:
            self.lengths[request.id] += request.tokens
        if all_logits:
            return {name: logits[start:stop] for name, (start, stop) in spans.items()}
        return dict(zip(spans, logits, strict=True))

    def _requests(self, tokens: Mapping[Any, Sequence[int]]) -> list[Request]:
        """Context requests first, as a step packs them."""
        for name in tokens:
            if name not in self.lengths:
                raise fail("KVC501", f"no sequence {name!r}", help="admit it first")
        requests = [Request(name, tokens=len(ids), phase=self._phase(name, ids)) for name, ids in tokens.items()]
        return sorted(requests, key=lambda request: request.phase == "generation")

    def _is_captured(self, requests: Sequence[Request]) -> bool:
        bucket = next_bucket(len(requests), self.kvc_cache.program.buckets)
        return bucket in self._captured.buckets and all(request.phase == "generation" for request in requests)

    def _phase(self, name: SequenceId, ids: Sequence[int]) -> Phase:
        return "generation" if len(ids) == 1 and self.lengths[name] else "context"

    def _spans(self, requests: Sequence[Request]) -> dict[SequenceId, tuple[int, int]]:
        spans: dict[SequenceId, tuple[int, int]] = {}
        start = 0
        for request in requests:
            spans[request.id] = (start, start + request.tokens)
            start += request.tokens
        return spans

    def _forward(
        self, requests: Sequence[Request], ids: list[int], positions: list[int], keep: int | list[int]
    ) -> Tensor:
        device = self.model.device
        kept = keep if isinstance(keep, int) else torch.tensor(keep, device=device)
        out = self.model(
            input_ids=torch.tensor([ids], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=True,
            logits_to_keep=kept,
            **{self._cache_name: PackedCache(self.kvc_cache, self.num_layers, requests)},
        )
        return out.logits[0]


def prefill(runner: Runner, sequence: SequenceId, ids: Sequence[int], chunk: int) -> Tensor:
    """Give a prompt to an admitted sequence in chunks of at most ``chunk`` tokens; logits after its last one."""
    logits = torch.empty(0)
    for start in range(0, len(ids), chunk):
        logits = runner.step({sequence: ids[start : start + chunk]})[sequence]
    return logits
