"""One text on several caches side by side, and how far the predictions are from those of the first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kvc.integrations.transformers.attachment import attach_side_by_side
from kvc.sweep.text import Text

Progress = Callable[[int], None]  # told how many tokens more are done


@dataclass(frozen=True)
class Measured:
    """For each token of a text, fp64: KL divergence of the reference's prediction of the next token to this one's,
    minus the log-probability of that token (``surprise``), and whether both predict the same (``agrees``)."""

    kl: Tensor
    surprise: Tensor
    agrees: Tensor

    @property
    def perplexity(self) -> float:
        """exp of the mean surprise."""
        return float(self.surprise.mean().exp())


def measure(
    model: Any, artifacts: Sequence[Any], text: Text, chunk: int, progress: Progress = lambda _: None
) -> list[Measured]:
    """Give ``text`` to a cache of each artifact, ``chunk`` tokens a step; the first one is the reference.

    All see the same text: no prediction is fed back. Steps of one token are generation steps, from the second on.
    """
    names, ids = range(len(artifacts)), text.ids
    parts: list[list[Measured]] = [[] for _ in artifacts]
    with attach_side_by_side(model, artifacts, tokens=text.tokens) as attached:
        runner = attached.runner()
        for name in names:
            runner.admit(name)
        for start in range(0, text.tokens, chunk):
            stop = min(start + chunk, text.tokens)
            logits = runner.step({name: ids[start:stop] for name in names}, all_logits=True)
            following = torch.tensor(ids[start + 1 : stop + 1], device=logits[0].device)
            for part, found in zip(parts, _compared([logits[name] for name in names], following), strict=True):
                part.append(found)
            progress(stop - start)
    return [_joined(part) for part in parts]


def _compared(logits: Sequence[Tensor], following: Tensor) -> list[Measured]:
    logs = [one.double().log_softmax(-1) for one in logits]
    reference = logs[0]
    chances = reference.exp()
    return [
        Measured(
            kl=(chances * (reference - log)).sum(-1),
            surprise=-log.gather(-1, following[:, None])[:, 0],
            agrees=(log.argmax(-1) == reference.argmax(-1)).double(),
        )
        for log in logs
    ]


def _joined(parts: Sequence[Measured]) -> Measured:
    names = ("kl", "surprise", "agrees")
    return Measured(*(torch.cat([getattr(part, name) for part in parts]).cpu() for name in names))
