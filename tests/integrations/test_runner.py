"""Continuous batching: packed steps over sequences of different lengths, eager and captured."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import compile_for, make_model, token_ids

from kvc.diagnostics import KvcError
from kvc.integrations.transformers import attach
from kvc.integrations.transformers.captured import CapturedDecode
from kvc.runtime.batch import Request
from kvc.runtime.out_of_pages import OutOfPages

TOLERANCE = {"atol": 1e-4, "rtol": 0.0}


def prompts(*lengths: int) -> dict[str, list[int]]:
    return {f"s{n}": token_ids(n, seed=n).tolist() for n in lengths}


def start(runner: Any, given: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    for name in given:
        runner.admit(name)
    return runner.step(given)


def expected(plain: Any, ids: list[int]) -> torch.Tensor:
    return plain(torch.tensor([ids])).logits[0]


def test_sequences_come_and_go(attached: Any, plain: Any) -> None:
    """Prompts join while others decode, one leaves: each sequence's logits are those of it alone."""
    runner, given = attached.runner(), prompts(5, 17, 30)
    first, second, third = given
    logits = start(runner, {first: given[first]})
    torch.testing.assert_close(logits[first], expected(plain, given[first])[-1], **TOLERANCE)
    runner.admit(second)
    given[first].append(7)
    logits = runner.step({first: [7], second: given[second]}, all_logits=True)
    torch.testing.assert_close(logits[first][0], expected(plain, given[first])[-1], **TOLERANCE)
    torch.testing.assert_close(logits[second], expected(plain, given[second]), **TOLERANCE)
    runner.release(first)
    runner.admit(third)
    runner.step({third: given[third][:9]})
    given[second].append(11)
    logits = runner.step({second: [11], third: given[third][9:]})
    torch.testing.assert_close(logits[second], expected(plain, given[second])[-1], **TOLERANCE)
    torch.testing.assert_close(logits[third], expected(plain, given[third])[-1], **TOLERANCE)
    assert runner.lengths == {second: 18, third: 30}


def test_pages_and_history_survive_a_failed_forward(attached: Any, plain: Any, monkeypatch: Any) -> None:
    runner, (ids,) = attached.runner(), prompts(12).values()
    start(runner, {"a": ids[:8]})
    free = attached.kvc_cache.manager.free_slots

    def broken(*_: Any) -> None:
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(attached.base.layers[-1].mlp, "forward", broken)
        with pytest.raises(RuntimeError, match="out of luck"):
            runner.step({"a": ids[8:]})
    assert attached.kvc_cache.manager.free_slots == free
    torch.testing.assert_close(runner.step({"a": ids[8:]})["a"], expected(plain, ids)[-1], **TOLERANCE)


def test_out_of_pages_changes_nothing(tmp_path: Path) -> None:
    model = make_model("qwen3")
    with attach(model, compile_for(tmp_path, model), tokens=32) as attached:
        runner = attached.runner()
        start(runner, prompts(20))
        runner.admit("late")
        with pytest.raises(OutOfPages):
            runner.step({"s20": [5], "late": token_ids(30).tolist()})
        assert runner.lengths == {"s20": 20, "late": 0}
        runner.step({"s20": [5]})


def test_an_unknown_sequence_is_named(attached: Any) -> None:
    with pytest.raises(KvcError, match=r"KVC501.*'ghost'"):
        attached.runner().step({"ghost": [1]})


@pytest.mark.parametrize("sequences", [1, 2, 3, 5])
def test_captured_steps_equal_eager_ones_bit_for_bit(attached: Any, sequences: int) -> None:
    """The same padded step, replayed and run eagerly on equal pools."""
    given = prompts(*range(3, 3 + 4 * sequences, 4))
    runner = attached.runner()
    runner.capture()
    start(runner, given)
    pools = {name: tensor.clone() for name, tensor in attached.kvc_cache.static_tensors.items()}
    replayed = runner.step({name: [9] for name in given})
    after = {name: tensor.clone() for name, tensor in attached.kvc_cache.static_tensors.items()}
    for name in given:
        attached.kvc_cache.release(name)
    assert any(not torch.equal(pools[name], after[name]) for name in pools)  # the replay stored its tokens

    eager = CapturedDecode(attached.model, attached.kvc_cache, runner.num_layers)
    again = attached.runner()
    start(again, given)
    step = attached.kvc_cache.begin([Request(name, 1, "generation") for name in given], prologue=False)
    ids = torch.zeros(1, step.bucket[0], dtype=torch.int64)
    ids[0, : len(given)] = 9
    logits = eager.forward(step, ids)
    attached.kvc_cache.commit(step)
    for row, name in enumerate(given):
        assert torch.equal(replayed[name], logits[row])
    for name, tensor in attached.kvc_cache.static_tensors.items():
        assert torch.equal(tensor, after[name]), name


def test_captured_decoding_gives_the_models_tokens(attached: Any, plain: Any) -> None:
    """Growing lengths and changing sequences are read from the step buffer, not frozen at capture."""
    runner, given = attached.runner(), prompts(6, 13, 21)
    runner.capture([1, 4])
    logits = start(runner, given)
    for _ in range(12):
        chosen = {name: int(row.argmax()) for name, row in logits.items()}
        for name, token in chosen.items():
            given[name].append(token)
        logits = runner.step({name: [token] for name, token in chosen.items()})
        if len(given) == 3 and len(given["s6"]) == 12:
            del given["s6"]
            runner.release("s6")
            logits = {name: logits[name] for name in given}
    for name, ids in given.items():
        torch.testing.assert_close(logits[name], expected(plain, ids)[-1], **TOLERANCE)
        n = int(name[1:])
        assert ids[n:] == expected(plain, ids)[n - 1 : -1].argmax(-1).tolist()


def test_only_planned_buckets_are_captured(attached: Any) -> None:
    runner, cache = attached.runner(), attached.kvc_cache
    with pytest.raises(KvcError, match="KVC526 a bucket of 3 sequences"):
        runner.capture([3])
    cache.program = replace(cache.program, capture=None)
    with pytest.raises(KvcError, match=r"KVC526 program .* has no capture plan"):
        runner.capture()


def test_a_replay_takes_the_graph_of_its_own_step(attached: Any) -> None:
    """Of no other number of tokens or sequences, and with no context beside it; nothing is stored then."""
    runner, cache = attached.runner(), attached.kvc_cache
    start(runner, prompts(3, 5))
    captured = CapturedDecode(attached.model, cache, runner.num_layers)
    captured.capture(1)
    one, two = (Request(name, 1, "generation") for name in ("s3", "s5"))
    for requests, code in (([replace(one, tokens=2)], 525), ([one, two], 525), ([Request("s3", 1), two], 526)):
        with pytest.raises(KvcError, match=f"KVC{code}"):
            captured.replay(requests, [7] * len(requests))
    assert [cache.manager.committed(name) for name in ("s3", "s5")] == [3, 5]
    assert captured.replay([one], [7]).shape[0] == 1
