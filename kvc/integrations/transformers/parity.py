"""How close a model on kvc's cache is to the same model on its own: greedy continuations and KL divergence.

The reference is always the plain model with transformers' DynamicCache; nothing here is attached to it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from kvc import compat
from kvc.integrations.transformers.runner import Runner, prefill
from kvc.runtime.out_of_pages import SequenceId

Progress = Callable[[int], None]  # told how many tokens more are done


@dataclass(frozen=True)
class Choice:
    """A greedy token and the lead of its logit over the second best."""

    token: int
    margin: float


@dataclass(frozen=True)
class Divergence:
    """The first step in which two greedy continuations differ.

    ``margin`` is the reference's top-2 margin there, in logits: how close a call it was. What follows is not compared,
    because from then on the contexts differ.
    """

    step: int
    expected: int
    got: int
    margin: float


def choose(logits: Tensor) -> Choice:
    """The greedy choice of logits ``[vocabulary]``."""
    top = logits.float().topk(2)
    return Choice(int(top.indices[0]), float(top.values[0] - top.values[1]))


@torch.inference_mode()
def own_continuation(model: Any, ids: Sequence[int], steps: int) -> Iterator[Choice]:
    """Greedy tokens of ``model`` (not attached) on its own DynamicCache: one prefill, then a token a step."""
    cache, given = DynamicCache(config=model.config), list(ids)
    for _ in range(steps):
        options = {compat.cache_argument(model): cache, "use_cache": True, "logits_to_keep": 1}
        choice = choose(model(input_ids=torch.tensor([given], device=model.device), **options).logits[0, -1])
        given = [choice.token]
        yield choice


def kvc_continuation(runner: Runner, ids: Sequence[int], steps: int, *, sequence: str = "parity") -> Iterator[Choice]:
    """Greedy tokens of an attached model: prefill in chunks that fit a step, then a generation step a token."""
    runner.admit(sequence)
    try:
        logits = prefill(runner, sequence, ids, runner.max_tokens)
        for index in range(steps):
            choice = choose(logits)
            yield choice
            if index + 1 < steps:
                logits = runner.step({sequence: [choice.token]})[sequence]
    finally:
        runner.release(sequence)


def kvc_continuations(
    runner: Runner, prompts: Sequence[Sequence[int]], steps: int, progress: Progress = lambda _: None
) -> list[list[Choice]]:
    """Greedy tokens of several prompts, decoded together, as many at a time as the program serves."""
    chosen: list[list[Choice]] = [[] for _ in prompts]
    size = runner.kvc_cache.limits.max_sequences
    for start in range(0, len(prompts), size):
        group = {f"parity-{index}": index for index in range(start, min(start + size, len(prompts)))}
        logits: dict[SequenceId, Tensor] = {}
        for name, index in group.items():
            runner.admit(name)
            logits[name] = prefill(runner, name, prompts[index], runner.max_tokens)
        for step in range(steps):
            for name, index in group.items():
                chosen[index].append(choose(logits[name]))
            progress(len(group))
            if step + 1 < steps:
                logits = runner.step({name: [chosen[index][-1].token] for name, index in group.items()})
        for name in group:
            runner.release(name)
    return chosen


def first_divergence(expected: Sequence[Choice], got: Sequence[int]) -> Divergence | None:
    """Where ``got`` leaves the reference ``expected``; None where it never does."""
    for step, (choice, token) in enumerate(zip(expected, got, strict=False)):
        if choice.token != token:
            return Divergence(step, choice.token, token, choice.margin)
    return None


@torch.inference_mode()
def own_logits(model: Any, ids: Sequence[int]) -> Tensor:
    """Logits ``[n, vocabulary]`` of one plain forward over ``ids``, fp32."""
    return model(input_ids=torch.tensor([list(ids)], device=model.device), use_cache=False).logits[0].float()


def decoded_logits(runner: Runner, ids: Sequence[int], *, sequence: str = "parity") -> Iterator[Tensor]:
    """Logits ``[vocabulary]`` after each token of ``ids``, given one a step, so that the cache is read back."""
    runner.admit(sequence)
    try:
        for token in ids:
            yield runner.step({sequence: [token]})[sequence].float()
    finally:
        runner.release(sequence)


def kl_divergence(reference: Tensor, other: Tensor) -> Tensor:
    """KL(reference || other) in nats over the last axis of two tensors of logits."""
    p, q = reference.double().log_softmax(-1), other.double().log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)
