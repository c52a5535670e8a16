"""Named dimensions of a graph: `T` tokens, `B` sequences, `P` pages, ... and the fake tensors that carry them.

A fake tensor is a tensor on the meta device whose named dimensions are large primes, one a name: op shape rules run as
they are, and a result's sizes are read back as names. Two dimensions never compare equal, so a graph cannot be
specialised to a size silently. FakeTensorMode with a ShapeEnv would do the same, but importing what it needs costs more
time than the rest of a compilation.
"""

import ast
import math
import re
from collections.abc import Iterator, Mapping
from itertools import permutations

import torch

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

# Above all heads and head dims, far apart from each other, small enough that a page of each fits in 63 bits.
_PRIMES = (1000003, 1100009, 1200007, 1300021, 1400017, 1500007, 1600033, 1700021, 1800017, 1900009, 2000003, 2100001)
_FIRST = _PRIMES[0] // 2
_MAX_OFFSET = 1000  # `B + 1`: what may be added to a dimension
_MAX_MULTIPLE = 64  # `T + 16*B`: how often a dimension may be added to another one
_MAX_TEXT = 200  # characters of a size: nothing longer was printed, and the parser's recursion stays bounded

Size = int | str


class Symbols:
    """The named dimensions of one graph."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._literals = set[int]()  # numbers that were given and are as large as what stands for a dimension

    def size(self, text: Size) -> int:
        """The number that stands for ``text``: a number, a name, or sums and products of them (`B + 1`).

        ValueError or SyntaxError for other text, and ValueError for more names than there are primes: two of them would
        compare equal.
        """
        if not isinstance(text, str):
            return self._literal(text)
        if len(text) > _MAX_TEXT:
            raise ValueError(f"not a size: {text[:80]}...")
        return self._evaluate(ast.parse(text, mode="eval").body)

    def _literal(self, value: int) -> int:
        if value >= _FIRST:
            self._literals.add(value)
        return value

    def _name(self, name: str) -> int:
        if name not in self._values:
            if len(self._values) == len(_PRIMES):
                raise ValueError(f"{name} is one dimension too many; a graph has at most {len(_PRIMES)}")
            self._values[name] = _PRIMES[len(self._values)]
        return self._values[name]

    def _evaluate(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return self._literal(value)
            case ast.Name(id=name):
                return self._name(name)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._evaluate(left) + self._evaluate(right)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self._evaluate(left) - self._evaluate(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self._evaluate(left) * self._evaluate(right)
        raise ValueError(f"not a size: {ast.unparse(node)}")

    def size_text(self, value: int) -> str:
        """The inverse of ``size``; `?123` for a number that is no simple expression of the dimensions."""
        if value < _FIRST or value in self._literals:
            return str(value)
        for name, prime in self._values.items():
            if abs(value - prime) <= _MAX_OFFSET:
                return name if value == prime else f"{name} {'+' if value > prime else '-'} {abs(value - prime)}"
            if value % prime == 0:
                return f"{name}*{self.size_text(value // prime)}"
        return next(self._sums(value), f"?{value}")

    def _sums(self, value: int) -> Iterator[str]:
        """The sums of a dimension and a multiple of another one that are ``value``: in theory several may be."""
        for (name, prime), (other, more) in permutations(self._values.items(), 2):
            count, rest = divmod(value - prime, more)
            if rest == 0 and 1 <= count <= _MAX_MULTIPLE:
                yield f"{name} + {other}" if count == 1 else f"{name} + {count}*{other}"

    def number(self, value: int, sizes: Mapping[str, int]) -> int:
        """What ``value`` is where the dimensions have these sizes; KeyError names a dimension that has none."""
        return _Sizes(sizes).size(self.size_text(value))

    def readable(self, message: str) -> str:
        """``message`` with the numbers that stand for dimensions written as their names."""
        return re.sub(r"\d{7,}", lambda match: self.size_text(int(match[0])), message)

    def tensor(self, dtype: torch.dtype, shape: tuple[Size, ...]) -> torch.Tensor:
        """A contiguous fake tensor of the named shape; ValueError or SyntaxError for a shape that no tensor has."""
        sizes = [self.size(size) for size in shape]
        if min(sizes, default=0) < 0 or math.prod(sizes) * dtype.itemsize >= 2**63:
            raise ValueError(f"no tensor has the shape [{', '.join(map(str, shape))}]")
        return torch.empty(sizes, dtype=dtype, device="meta")

    def type_text(self, value: torch.Tensor) -> str:
        """`bf16[T, 32, 128]`."""
        return f"{DTYPE_NAMES[value.dtype]}[{', '.join(self.size_text(size) for size in value.shape)}]"


class _Sizes(Symbols):
    """Dimensions of given sizes."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self._values = dict(sizes)

    def _name(self, name: str) -> int:
        return self._values[name]
