"""Named dimensions of a graph: `T` tokens, `B` sequences, `P` pages, ... as SymInts of one fake-tensor mode."""

import ast
import re

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

DTYPE_NAMES: dict[torch.dtype, str] = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
}
DTYPES: dict[str, torch.dtype] = {name: dtype for dtype, name in DTYPE_NAMES.items()}

Size = int | str | torch.SymInt


class Symbols:
    """The symbolic dimensions and the fake-tensor mode of one graph.

    Dimensions are unbacked: an op whose fake kernel decides anything by comparing two of them fails while the graph
    is built, so no graph is silently specialised to one size.
    """

    def __init__(self) -> None:
        self.fake_mode = FakeTensorMode(shape_env=ShapeEnv())
        self._sizes: dict[str, torch.SymInt] = {}
        self._names: dict[str, str] = {}

    def size(self, text: Size) -> int | torch.SymInt:
        """The size written as ``text``: a number, a name, or sums and products of them (`B + 1`)."""
        return self._evaluate(ast.parse(text, mode="eval").body) if isinstance(text, str) else text

    def _evaluate(self, node: ast.expr) -> int | torch.SymInt:
        match node:
            case ast.Constant(value=int(value)):
                return value
            case ast.Name(id=name):
                return self._named(name)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._evaluate(left) + self._evaluate(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self._evaluate(left) * self._evaluate(right)
        raise ValueError(f"not a size: {ast.unparse(node)}")

    def _named(self, name: str) -> torch.SymInt:
        if name not in self._sizes:
            shape_env = self.fake_mode.shape_env
            assert shape_env is not None
            size = shape_env.create_unbacked_symint()
            self._sizes[name] = size
            self._names[str(size.node.expr)] = name
        return self._sizes[name]

    def assumptions(self) -> str:
        """What propagation had to assume of the dimensions, as text; empty for a graph that fits every size.

        That sizes are not negative is no assumption.
        """
        assert self.fake_mode.shape_env is not None
        asserts = self.fake_mode.shape_env.deferred_runtime_asserts.values()
        found = (assumed.expr for group in asserts for assumed in group)
        return " and ".join(self._text(e) for e in found if not (isinstance(e, sympy.Le | sympy.Ge) and 0 in e.args))

    def size_text(self, size: int | torch.SymInt) -> str:
        """The inverse of ``size``, the same text for equal expressions."""
        return str(size) if isinstance(size, int) else self._text(size.node.expr)

    def _text(self, expression: sympy.Basic) -> str:
        text = sympy.sstr(expression, order="lex")
        return re.sub(r"\bu\d+\b", lambda match: self._names.get(match[0], match[0]), text)

    def tensor(self, dtype: torch.dtype, shape: tuple[Size, ...]) -> FakeTensor:
        """A contiguous fake CPU tensor of the named shape."""
        with self.fake_mode:
            return torch.empty([self.size(size) for size in shape], dtype=dtype)  # type: ignore[return-value]

    def type_text(self, value: torch.Tensor) -> str:
        """`bf16[T, 32, 128]`."""
        return f"{DTYPE_NAMES[value.dtype]}[{', '.join(self.size_text(size) for size in value.shape)}]"
