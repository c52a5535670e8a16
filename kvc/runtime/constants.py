"""Makes the tensors that a program names as constants, and checks that they are the ones it was compiled for."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kvc.diagnostics import KvcError, fail
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
    return {name: _make(name, constant, checkpoint).to(device) for name, constant in constants.items()}


def _make(name: str, constant: Constant, checkpoint: Checkpoint) -> torch.Tensor:
    try:
        return _MAKERS[constant.kind](name, constant.params, checkpoint)
    except KvcError:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        message = f"the artifact is damaged: constant {name} cannot be made: {type(error).__name__}: {error}"
        raise fail("KVC405", message, help="compile the spec again with --force") from error


def _scale(name: str, params: Mapping[str, Any], checkpoint: Checkpoint) -> torch.Tensor:
    value = params["value"] if "value" in params else checkpoint.scale(list(params["tensors"]))
    return scale_operand(params["codec"], value)


def _weight(name: str, params: Mapping[str, Any], checkpoint: Checkpoint) -> torch.Tensor:
    return checkpoint.kv_b_part(params)


def _rope_table(name: str, params: Mapping[str, Any], checkpoint: Checkpoint) -> torch.Tensor:
    fields = params["rope"]
    rope = Rope(**{**fields, "params": tuple(sorted(dict(fields["params"]).items()))})
    table = rope_table(rope, params["rows"])
    digest = table_digest(table)
    if digest != params["sha256"]:
        what = f"{name} is another table on this machine ({digest[:12]}) than where the artifact was compiled"
        warnings.warn(f"KVC509: {what}; cache bytes may differ by an ulp between the two", stacklevel=2)
    return table


_Maker = Callable[[str, Mapping[str, Any], Checkpoint], torch.Tensor]
_MAKERS: dict[str, _Maker] = {"scale": _scale, "rope_table": _rope_table, "weight": _weight}
