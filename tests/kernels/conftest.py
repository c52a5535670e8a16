"""Kernels are tested on a GPU, or, where Triton's interpreter can run them, on the CPU."""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "ops"))  # its helpers make calls of every form

if os.environ.get("TRITON_INTERPRET") == "1":
    from triton.runtime import interpreter

    _patch = interpreter._patch_lang_tensor

    def _with_numpy_2_4(tensor: Any, scope: Any) -> None:
        """Loop bounds are arrays of one element there, which numpy 2.4 no longer takes for numbers."""
        _patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = _with_numpy_2_4
