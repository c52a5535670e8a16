"""Makes the tensors that a program names as constants, and checks that they are the ones it was compiled for."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kvc.diagnostics import fail
from kvc.graphs.program import Constant
from kvc.ops.codecs import scale_operand
from kvc.ops.rope_table import rope_table, table_digest
from kvc.specs.resolved import Rope


def make_constants(constants: Mapping[str, Constant], device: str | torch.device) -> dict[str, torch.Tensor]:
    """Constant id -> tensor on ``device``; warns KVC509 of a table whose bytes are not those in the program.

    KVC405 for a constant whose parameters make none: they are read from an artifact.
    """
    return {name: _make(name, constant).to(device) for name, constant in constants.items()}


def _make(name: str, constant: Constant) -> torch.Tensor:
    try:
        return _MAKERS[constant.kind](name, constant.params)
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        message = f"the artifact is damaged: constant {name} cannot be made: {type(error).__name__}: {error}"
        raise fail("KVC405", message, help="compile the spec again with --force") from error


def _scale(name: str, params: Mapping[str, Any]) -> torch.Tensor:
    return scale_operand(params["codec"], params["value"])


def _rope_table(name: str, params: Mapping[str, Any]) -> torch.Tensor:
    fields = params["rope"]
    rope = Rope(**{**fields, "params": tuple(sorted(dict(fields["params"]).items()))})
    table = rope_table(rope, params["rows"])
    digest = table_digest(table)
    if digest != params["sha256"]:
        what = f"{name} is another table on this machine ({digest[:12]}) than where the artifact was compiled"
        warnings.warn(f"KVC509: {what}; cache bytes may differ by an ulp between the two", stacklevel=2)
    return table


_MAKERS: dict[str, Callable[[str, Mapping[str, Any]], torch.Tensor]] = {"scale": _scale, "rope_table": _rope_table}
