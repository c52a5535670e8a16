"""A short run on the real SmolLM2-135M; `benchmarks/parity.py` is the long one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pydoc_data.topics import topics
from typing import Any

import pytest
import torch

import kvc
from kvc.diagnostics import KvcError
from kvc.integrations.checkpoints import model_folder
from kvc.integrations.transformers import attach
from kvc.integrations.transformers.loading import convert_gguf, load_model
from kvc.integrations.transformers.parity import (
    decoded_logits,
    first_divergence,
    kl_divergence,
    kvc_continuation,
    own_continuation,
    own_logits,
)
from kvc.runtime.loader import LoadedArtifact

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def loaded() -> Any:
    try:
        folder = model_folder("smollm2-135m", convert_gguf)
    except KvcError as error:
        if error.diagnostics[0].code != "KVC605":
            raise
        pytest.skip(str(error))
    return load_model(folder, "fp32")


@contextmanager
def running(loaded: Any, encoding: str) -> Iterator[Any]:
    artifact = LoadedArtifact(kvc.compile_spec(f"smollm2-135m-{encoding}").artifact)
    with attach(loaded.model, artifact, tokens=512) as attached:
        yield attached.runner()


def test_fp32_continuation_equals_the_models_own(loaded: Any) -> None:
    ids = loaded.tokenizer(topics["with"]).input_ids[:200]
    assert len(ids) == 200
    expected = list(own_continuation(loaded.model, ids, 8))
    with running(loaded, "fp32") as runner:
        got = [choice.token for choice in kvc_continuation(runner, ids, 8)]
    assert len(got) == 8
    assert first_divergence(expected, got) is None


def test_fp8_read_back_is_close_and_prefill_is_exact(loaded: Any) -> None:
    ids = loaded.tokenizer(topics["specialnames"]).input_ids[:64]
    reference, prefill = own_logits(loaded.model, ids), {}
    for encoding in ("fp32", "fp8"):
        with running(loaded, encoding) as runner:
            runner.admit("prefill")
            prefill[encoding] = runner.step({"prefill": ids}, all_logits=True)["prefill"]
            if encoding == "fp8":
                decoded = torch.stack(list(decoded_logits(runner, ids)))
    kl = float(kl_divergence(reference, decoded).mean())
    assert 0.0 < kl < 0.03  # not 0: the cache was read back
    assert torch.equal(prefill["fp8"], prefill["fp32"])
