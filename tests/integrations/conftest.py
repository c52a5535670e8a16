"""Shared by the tests of the transformers integration."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="the hf extra is not installed")

from tiny_models import LATENT_MODELS, MODELS, compile_for, make_model

from kvc.integrations.transformers import attach


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(params=(*MODELS, *LATENT_MODELS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def plain(name: str) -> Any:
    """The model on its own cache."""
    return make_model(name)


@pytest.fixture
def attached(name: str, tmp_path: Path) -> Iterator[Any]:
    """The same model on kvc's fp32 cache."""
    model = make_model(name)
    with attach(model, compile_for(tmp_path, model), tokens=1024) as attachment:
        yield attachment
