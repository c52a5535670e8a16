"""What holds for every op of the table: registration, documentation, examples, fake kernels, opcheck."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from op_variants import VARIANTS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from kvc.ops import OPS
from kvc.ops.codecs import CODECS
from kvc.ops.example_inputs import SHAPES, Shape

ROOT = Path(__file__).parents[2]
CODEC_OPS = {f"{verb}_{codec}" for codec in CODECS for verb in ("quantize", "dequantize")}
OTHER_OPS = {path.parent.name for path in (ROOT / "ops").glob("*/schema.py")}


def flat(result):
    return [result] if isinstance(result, torch.Tensor) else list(result or ())


def test_the_table_holds_every_folder_and_codec():
    assert set(OPS) == CODEC_OPS | OTHER_OPS and len(OTHER_OPS) >= 11
    assert {name: op.mutates for name, op in OPS.items() if op.mutates} == {
        "store_rows": ("pool",),
        "append_gqa": ("pool", "twin"),
        "append_mla": ("pool", "twin"),
        "store_retained_rows": ("twin",),
        "stage_history": ("staging",),
        "write_back": ("pool", "twin"),
    }


@pytest.mark.parametrize("name", OPS)
def test_every_op_is_described_and_tested(name):
    doc = OPS[name].doc
    assert "Source: docs/semantics.md" in doc and ("Returns" in doc or name.startswith("store_"))
    assert "[" in doc, "shapes are given"
    test = "codecs" if name in CODEC_OPS else name
    assert (ROOT / "tests/ops" / f"test_op_{test}.py").is_file()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPS)
def test_kernel_fake_and_meta_agree(name, shape):
    check_fake_and_repeat(lambda: (name, *OPS[name].example(SHAPES[shape])))


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernel_fake_and_meta_agree_on_variants(variant):
    check_fake_and_repeat(VARIANTS[variant])


def check_fake_and_repeat(make):
    name, args, kwargs = make()
    real = flat(OPS[name].overload(*args, **kwargs))
    with FakeTensorMode() as mode:
        fake = flat(OPS[name].overload(*to_fake(mode, args), **kwargs))
    assert [(r.shape, r.dtype, r.stride()) for r in real] == [(f.shape, f.dtype, f.stride()) for f in fake]
    _, args, kwargs = make()
    again = flat(OPS[name].overload(*args, **kwargs))
    assert all(torch.equal(bytes_of(a), bytes_of(b)) for a, b in zip(real, again, strict=True))


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8)


def to_fake(mode, value, context=lambda tensor: None):
    if isinstance(value, torch.Tensor):
        return mode.from_tensor(value, symbolic_context=context(value))
    return type(value)(to_fake(mode, v, context) for v in value) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", OPS)
def test_fake_kernel_adds_no_guard(name):
    """Under one distinct symbol for every size that varies between steps (T, B, W, P, M), as graphs are built."""
    check_no_guard(name, *OPS[name].example(Shape()))


@pytest.mark.parametrize("variant", VARIANTS)
def test_fake_kernel_adds_no_guard_on_variants(variant):
    check_no_guard(*VARIANTS[variant]())


def check_no_guard(name, args, kwargs):
    env = ShapeEnv()
    OPS[name].overload(*to_fake(FakeTensorMode(shape_env=env), args, symbolic), **kwargs)
    assert not env.guards


def symbolic(tensor):
    index = tensor.dtype == torch.int32
    sizes = [DimDynamic.DYNAMIC if index or i == 0 < tensor.ndim - 1 else DimDynamic.STATIC for i in range(tensor.ndim)]
    return StatelessSymbolicContext(dynamic_sizes=sizes)


def test_transposed_v_passes_from_op_to_op_under_symbols():
    """Its columns are T + 16 B of the same symbols, which mla_context compares with nothing."""
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    _, args, kwargs = VARIANTS["mla_context, V transposed"]()
    _, rows, options = VARIANTS["expand_mla, V transposed"]()
    rows, args = to_fake(mode, rows, symbolic), to_fake(mode, args, symbolic)
    own = OPS["expand_mla"].overload(*rows, **options)
    out, lse = OPS["mla_context"].overload(*args[:2], *own, *args[4:], **kwargs)
    assert str(own[1].shape[2]) == f"{rows[0].shape[0]} + 16*{rows[4].shape[0]} - 16"
    assert out.shape[1:] == (4, 32) and lse.shape[1] == 4 and not env.guards


@pytest.mark.parametrize("shape", ["plain", "padding"])
@pytest.mark.parametrize("name", OPS)
def test_opcheck(name, shape):
    args, kwargs = OPS[name].example(SHAPES[shape])
    torch.library.opcheck(OPS[name].overload, args, kwargs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_opcheck_of_variants(variant):
    name, args, kwargs = VARIANTS[variant]()
    torch.library.opcheck(OPS[name].overload, args, kwargs)


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def test_nothing_imports_the_folder_as_ops():
    folders = ["kvc", "ops", "graphs", "specs", "compiler_passes", "tests", "benchmarks", "examples"]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 50
    assert not [path for path in files if "ops" in {name.split(".")[0] for name in imports(path)}]


def test_a_second_registration_is_an_error():
    code = "import kvc.ops, kvc.ops.registry as r; r.register(kvc.ops.OPS.values())"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode and "namespace" in result.stderr.splitlines()[-1]
