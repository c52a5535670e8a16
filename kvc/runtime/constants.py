"""Makes the tensors that a program names as constants, and checks that they are the ones it was compiled for."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kvc.diagnostics import fail
from kvc.graphs.program import Constant
from kvc.ops.codecs import scale_operand
from kvc.ops.rope_table import rope_table, table_digest
from kvc.runtime.weights import Checkpoint
from kvc.specs.resolved import Rope


def make_constants(
    constants: Mapping[str, Constant], device: str | torch.device, checkpoint: Checkpoint
) -> dict[str, torch.Tensor]:
    """Constant id -> tensor on ``device``; warns KVC509 of a table whose bytes are not those in the program.

    KVC405 for a constant whose parameters make none: they are read from an artifact. KVC512 and KVC513 for what the
    checkpoint lacks or has in another form.
    """
    checkpoint.require(_needed(constants))
    return {
        name: _MAKERS[constant.kind](name, constant.params, checkpoint).to(device)
        for name, constant in constants.items()
    }


def _needed(constants: Mapping[str, Constant]) -> Iterator[list[str]]:
    """For each constant of a checkpoint the names that it may have, each set once."""
    names = (constant.params.get("tensors") or [constant.params.get("tensor")] for constant in constants.values())
    yield from map(list, dict.fromkeys(tuple(row) for row in names if row != [None]))


def _scale(name: str, params: Mapping[str, Any], checkpoint: Checkpoint) -> torch.Tensor:
    if "value" in params:
        return scale_operand(params["codec"], params["value"])
    return checkpoint.scale(params["codec"], params["tensors"])


def _weight(name: str, params: Mapping[str, Any], checkpoint: Checkpoint) -> torch.Tensor:
    return checkpoint.kv_b_part(params)


def _rope_table(name: str, params: Mapping[str, Any], checkpoint: Checkpoint) -> torch.Tensor:
    table = _made_table(name, params)
    digest = table_digest(table)
    if digest != params["sha256"]:
        what = f"{name} is another table on this machine ({digest[:12]}) than where the artifact was compiled"
        warnings.warn(f"KVC509: {what}; cache bytes may differ by an ulp between the two", stacklevel=2)
    return table


def _made_table(name: str, params: Mapping[str, Any]) -> torch.Tensor:
    fields = params["rope"]
    try:
        return rope_table(Rope(**{**fields, "params": tuple(sorted(dict(fields["params"]).items()))}), params["rows"])
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        message = f"the artifact is damaged: constant {name} cannot be made: {type(error).__name__}: {error}"
        raise fail("KVC405", message, help="compile the spec again with --force") from error


_Maker = Callable[[str, Mapping[str, Any], Checkpoint], torch.Tensor]
_MAKERS: dict[str, _Maker] = {"scale": _scale, "rope_table": _rope_table, "weight": _weight}
