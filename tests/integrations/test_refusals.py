"""What an attached model cannot do is refused by code, with a way out, and leaves the cache usable."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import compile_for, make_model, token_ids
from transformers import DynamicCache

from kvc import compat
from kvc.diagnostics import KvcError
from kvc.integrations.transformers import attach
from kvc.integrations.transformers.attention import kvc_attention

GREEDY = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}


@pytest.fixture(params=["llama-odd-heads"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def generate(attached: Any, **options: Any) -> Any:
    cache = {compat.cache_argument(attached.model): attached.new_cache()}
    return attached.model.generate(token_ids(2, 9), **GREEDY, **cache, **options)


def forward(attached: Any, length: int = 9, cache: Any = None, **options: Any) -> Any:
    argument = {compat.cache_argument(attached.model): cache or attached.new_cache()}
    return attached.model(token_ids(2, length), **argument, **options)


def hide_a_stored_token(attached: Any) -> None:
    cache, mask = attached.new_cache(), torch.ones(2, 9, dtype=torch.long)
    forward(attached, cache=cache, attention_mask=mask)
    mask = torch.cat([mask, mask[:, :1]], dim=1)
    mask[0, 2] = 0
    forward(attached, 1, cache=cache, attention_mask=mask)


def another_batch(attached: Any) -> None:
    cache = attached.new_cache()
    forward(attached, cache=cache)
    attached.model(token_ids(3, 4), **{compat.cache_argument(attached.model): cache})


REFUSALS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "no cache": ("KVC610", lambda a: a.model(token_ids(1, 4))),
    "generate's own cache": ("KVC610", lambda a: a.model.generate(token_ids(1, 4), **GREEDY)),
    "a foreign cache": ("KVC610", lambda a: forward(a, cache=DynamicCache(config=a.model.config))),
    "no tokens": ("KVC610", lambda a: a.base(**{compat.cache_argument(a.model): a.new_cache()})),
    "beam search": ("KVC611", lambda a: generate(a, num_beams=2)),
    "a repeated batch": ("KVC611", lambda a: a.new_cache().batch_repeat_interleave(2)),
    "a selected batch": ("KVC611", lambda a: a.new_cache().batch_select_indices(torch.tensor([0]))),
    "crop": ("KVC612", lambda a: a.new_cache().crop(1)),
    "prompt lookup": ("KVC612", lambda a: a.model.generate(
        token_ids(1, 9), **GREEDY, prompt_lookup_num_tokens=2, **{compat.cache_argument(a.model): a.new_cache()}
    )),
    "attention weights": ("KVC613", lambda a: forward(a, output_attentions=True)),
    "a 4-D mask": ("KVC615", lambda a: forward(a, attention_mask=torch.zeros(2, 1, 9, 9))),
    "a short mask": ("KVC615", lambda a: forward(a, attention_mask=torch.ones(2, 5))),
    "a mask that changes its mind": ("KVC615", hide_a_stored_token),
    "other positions": ("KVC616", lambda a: forward(a, position_ids=torch.arange(9)[None] + 7)),
    "another batch": ("KVC618", another_batch),
    "attached twice": ("KVC619", lambda a: attach(a.model, a.kvc_cache)),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_refused(attached: Any, case: str) -> None:
    code, ask = REFUSALS[case]
    with pytest.raises(KvcError) as caught:
        ask(attached)
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert found.help
    assert forward(attached).logits.shape[:2] == (2, 9)  # the next call is served


def test_training_is_refused(attached: Any) -> None:
    attached.model.train()
    with pytest.raises(KvcError, match="KVC614"):
        forward(attached)


@pytest.mark.parametrize(
    ("options", "code"),
    [({"dropout": 0.1}, "KVC614"), ({"softcap": 50.0}, "KVC617"), ({"sliding_window": 16}, "KVC617")],
)
def test_attention_options_are_refused(attached: Any, options: dict[str, float], code: str) -> None:
    module = attached.base.layers[0].self_attn
    q = torch.zeros(1, 9, 1, 8)
    with pytest.raises(KvcError, match=code):
        kvc_attention(module, q, q[:, :3], q[:, :3], None, **options)


def test_a_cache_of_another_attachment(attached: Any, tmp_path: Path) -> None:
    other = make_model("llama-odd-heads")
    with attach(other, compile_for(tmp_path, other)) as second, pytest.raises(KvcError, match="another attachment"):
        forward(attached, cache=second.new_cache())
