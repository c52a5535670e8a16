"""generate() and plain forwards of an attached model against the same model on its own cache."""

import gc
from typing import Any

import pytest
import torch
from tiny_models import token_ids

from kvc import compat

GREEDY = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
TOLERANCE = {"atol": 1e-4, "rtol": 0.0}


def left_padded(batch: int = 3, length: int = 19) -> dict[str, torch.Tensor]:
    """Prompts of different lengths, padded on the left as generate() wants them."""
    ids, mask = token_ids(batch, length), torch.ones(batch, length, dtype=torch.long)
    for row in range(1, batch):
        mask[row, : 3 * row + 1] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def cached(attached: Any, cache: Any = None) -> dict[str, Any]:
    """The keyword arguments that give a model the attachment's cache."""
    return {compat.cache_argument(attached.model): cache or attached.new_cache()}


def test_prefill_logits(attached: Any, plain: Any) -> None:
    ids = token_ids(2, 37)
    got = attached.model(ids, **cached(attached)).logits
    torch.testing.assert_close(got, plain(ids).logits, **TOLERANCE)


def test_decode_logits(attached: Any, plain: Any) -> None:
    ids, cache = token_ids(2, 37), cached(attached)
    got = torch.cat([attached.model(ids[:, i : i + 1], **cache).logits for i in range(ids.shape[1])], dim=1)
    torch.testing.assert_close(got, plain(ids).logits, **TOLERANCE)


@pytest.mark.parametrize("chunk", [1, 7, 8, 16])
def test_prefill_in_chunks(attached: Any, chunk: int) -> None:
    ids, cache = token_ids(1, 33), cached(attached)
    whole = attached.model(ids, **cached(attached)).logits
    parts = [attached.model(part, **cache).logits for part in ids.split(chunk, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, **TOLERANCE)


def test_a_batch_equals_its_sequences(attached: Any) -> None:
    ids = token_ids(4, 21)
    together = attached.model(ids, **cached(attached)).logits
    alone = [attached.model(row[None], **cached(attached)).logits for row in ids]
    torch.testing.assert_close(together, torch.cat(alone), **TOLERANCE)


def test_greedy_tokens(attached: Any, plain: Any) -> None:
    ids = token_ids(2, 19)
    got = attached.model.generate(ids, **GREEDY, **cached(attached))
    assert got.tolist() == plain.generate(ids, **GREEDY).tolist()


@pytest.mark.parametrize("chunk", [None, 4])
def test_greedy_tokens_of_a_padded_batch(attached: Any, plain: Any, chunk: int | None) -> None:
    inputs = left_padded()
    got = attached.model.generate(**inputs, **GREEDY, prefill_chunk_size=chunk, **cached(attached))
    assert got.tolist() == plain.generate(**inputs, **GREEDY).tolist()


def test_padding_is_not_stored(attached: Any) -> None:
    inputs, cache = left_padded(), attached.new_cache()
    attached.model(**inputs, **cached(attached, cache))
    manager = attached.kvc_cache.manager
    stored = [manager.committed(sequence) for sequence in cache.sequences]
    assert stored == inputs["attention_mask"].sum(1).tolist()


def test_padding_on_the_right_and_rows_that_wait(attached: Any, plain: Any) -> None:
    """Tokens are what the mask shows, wherever they are; a row of padding alone takes no part in the step."""
    ids, cache = token_ids(2, 8), attached.new_cache()
    mask = torch.tensor([[1] * 8, [0] * 4 + [1, 1, 0, 0]])
    for stop in (4, 8):
        out = attached.model(ids[:, stop - 4 : stop], attention_mask=mask[:, :stop], **cached(attached, cache)).logits
    torch.testing.assert_close(out[0], plain(ids[:1]).logits[0, 4:], **TOLERANCE)
    torch.testing.assert_close(out[1, :2], plain(ids[1:, 4:6]).logits[0], **TOLERANCE)


def test_sampling(attached: Any, plain: Any) -> None:
    ids, options = token_ids(3, 11), {**GREEDY, "do_sample": True, "temperature": 0.7, "top_k": 20}
    torch.manual_seed(3)
    got = attached.model.generate(ids, **options, **cached(attached))
    torch.manual_seed(3)
    assert got.tolist() == plain.generate(ids, **options).tolist()


def test_a_cache_continues_after_generate(attached: Any, plain: Any) -> None:
    ids, cache = token_ids(1, 9), attached.new_cache()
    first = attached.model.generate(ids, **GREEDY, **cached(attached, cache))
    longer = torch.cat([first, token_ids(1, 5, seed=4)], dim=1)
    got = attached.model.generate(longer, **GREEDY, **cached(attached, cache))
    assert got.tolist() == plain.generate(longer, **GREEDY).tolist()


def test_pages_go_back_with_the_cache(attached: Any) -> None:
    free = attached.kvc_cache.manager.free_slots
    cache = attached.new_cache()
    attached.model(token_ids(2, 30), **cached(attached, cache))
    assert attached.kvc_cache.manager.free_slots < free
    cache.reset()
    assert attached.kvc_cache.manager.free_slots == free
    attached.model(token_ids(3, 30), **cached(attached, cache))
    del cache
    gc.collect()
    assert attached.kvc_cache.manager.free_slots == free


def test_detached_models_are_as_before(attached: Any, plain: Any) -> None:
    ids = token_ids(1, 12)
    attached.detach()
    attached.detach()
    assert torch.equal(attached.model(ids).logits, plain(ids).logits)
    assert compat.attention_implementation(attached.model) == compat.attention_implementation(plain)
