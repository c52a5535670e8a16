"""Weights for a program whose model is not at hand: for tests, benchmarks and trying out an artifact."""

from collections.abc import Mapping
from typing import Any

import torch

from kvc.graphs.program import Constant
from kvc.ops.axes import ACTIVATION_DTYPES
from kvc.runtime.weights import Weights


def random_weights(constants: Mapping[str, Constant], dtype: str = "fp32", seed: int = 0) -> Weights:
    """A tensor for every name of a checkpoint that the constants of a program ask for, the same for the same seed.

    Matrices are normal with a variance of 1 over their inputs, scales 0.05. ``dtype`` is the program's.
    """
    generator, made = torch.Generator().manual_seed(seed), dict[str, torch.Tensor]()
    for constant in constants.values():
        if constant.kind == "weight" and constant.params["tensor"] not in made:
            made[constant.params["tensor"]] = _kv_b(constant.params, generator).to(ACTIVATION_DTYPES[dtype])
        for name in constant.params.get("tensors", ()):
            made[name] = torch.tensor(0.05)
    return made


def _kv_b(params: Mapping[str, Any], generator: torch.Generator) -> torch.Tensor:
    rows = params["heads"] * (params["nope"] + params["v"])
    return torch.randn(rows, params["latent"], generator=generator) * params["latent"] ** -0.5
