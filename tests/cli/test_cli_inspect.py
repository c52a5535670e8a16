"""`kvc inspect`: what is asked for is shown, or refused."""

from collections.abc import Callable
from pathlib import Path

from kvc.compiler import compile_spec


def test_options_are_never_ignored(run_kvc: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    out = str(compile_spec("tiny-fp8").write(tmp_path / "out"))
    assert run_kvc("inspect", out, "--json", "--graph", "all")[0] == 2
    code, shown, error = run_kvc("inspect", out, "--graph", "")
    assert (code, shown) == (1, "") and "KVC406" in error


def test_what_a_checkpoint_gives_every_layer_is_one_row(
    run_kvc: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    library = Path(__file__).parents[2] / "specs" / "library" / "tiny-mla-fp8.yaml"
    (tmp_path / "some.yaml").write_text(library.read_text().replace("{source: unit}", "{source: checkpoint}"))
    out = str(compile_spec(tmp_path / "some.yaml").write(tmp_path / "out"))
    code, shown, _ = run_kvc("inspect", out)
    rows = [line.split(maxsplit=3) for line in shown.splitlines() if line.startswith(("scale.", "weight."))]
    assert code == 0
    assert [(name, number) for name, number, *_ in rows] == [
        ("scale.*.latent", "3"),
        ("scale.fp8.0.02", "1"),
        ("weight.*.w_uk", "3"),
        ("weight.*.w_uv", "3"),
    ]
    prefix = "model.layers.*.self_attn"
    assert rows[0][3].startswith(f"codec fp8, tensors {prefix}.k_proj.k_scale or {prefix}.k_scale or ")
