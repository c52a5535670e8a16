"""W_UK, W_UV and scales of a checkpoint: by name, whole or of one rank, plain or in fp8 blocks."""

import json

import pytest
import torch
from cache_harness import artifact
from safetensors.torch import save_file

import kvc
from kvc.diagnostics import KvcError
from kvc.runtime.random_weights import random_weights
from kvc.runtime.weights import Checkpoint

HEADS, NOPE, WIDTH, LATENT = 3, 5, 4, 7
PARAMS = {"tensor": "kv_b", "heads": HEADS, "nope": NOPE, "v": WIDTH, "latent": LATENT}


def kv_b(heads=HEADS, columns=LATENT, dtype=torch.float32):
    return torch.randn(heads * (NOPE + WIDTH), columns, generator=torch.Generator().manual_seed(0)).to(dtype)


def parts(weights, dtype=torch.float32, rank=0):
    checkpoint = Checkpoint(weights, dtype, rank)
    return [checkpoint.kv_b_part({**PARAMS, "part": part}) for part in ("w_uk", "w_uv")]


def refusal(call, *args, **kwargs):
    with pytest.raises(KvcError) as caught:
        call(*args, **kwargs)
    (found,) = caught.value.diagnostics
    return f"{found.code} {found.message} | {found.help}"


def test_the_parts_are_views_of_the_heads():
    whole = kv_b()
    w_uk, w_uv = parts({"kv_b": whole})
    for head in range(HEADS):
        start = head * (NOPE + WIDTH)
        assert torch.equal(w_uk[head], whole[start : start + NOPE])
        assert torch.equal(w_uv[head].T, whole[start + NOPE : start + NOPE + WIDTH])
    storage = whole.untyped_storage().data_ptr()
    assert {x.untyped_storage().data_ptr() for x in (w_uk, w_uv)} == {storage}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_takes_its_heads(rank):
    own = kv_b(2 * HEADS)[rank * HEADS * (NOPE + WIDTH) :][: HEADS * (NOPE + WIDTH)]
    for got, want in zip(parts({"kv_b": kv_b(2 * HEADS)}, rank=rank), parts({"kv_b": own}), strict=True):
        assert torch.equal(got, want)


def test_other_dtypes_are_cast():
    assert [x.dtype for x in parts({"kv_b": kv_b()}, torch.bfloat16)] == [torch.bfloat16] * 2


def test_fp8_blocks_are_dequantized():
    """Against a loop over single numbers, with blocks cut off at both ends."""
    rows, columns = 150, 130
    codes = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1)).to(torch.float8_e4m3fn)
    blocks = torch.tensor([[0.5, 2.0], [3.0, 0.25]])
    params = {"tensor": "kv_b", "part": "w_uk", "heads": 1, "nope": rows, "v": 0, "latent": columns}
    w_uk = Checkpoint({"kv_b": codes, "kv_b_scale_inv": blocks}, torch.float32).kv_b_part(params)
    for row in range(0, rows, 7):
        for column in range(0, columns, 5):
            assert w_uk[0, row, column] == codes[row, column].float() * blocks[row // 128, column // 128]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (None, "KVC512 the program needs kv_b of the model's checkpoint, and no weights are given | allocate(..., wei"),
        ({"kv_c": kv_b()}, "KVC512 the weights have no kv_b | the nearest name is kv_c"),
        ({"kv_b": kv_b(columns=8)}, "KVC513 kv_b of the checkpoint is [27, 8], expected [27, 7]"),
        ({"kv_b": kv_b()[:-1]}, "KVC513 kv_b of the checkpoint axis 0 is 26, expected 27, or a multiple of it"),
        ({"kv_b": kv_b()[0]}, "KVC513 kv_b of the checkpoint is [7]"),
        ({"kv_b": kv_b().int()}, "KVC513 kv_b of the checkpoint holds torch.int32, expected floating point numbers"),
        ({"kv_b": kv_b(dtype=torch.float8_e4m3fn)}, "KVC512 the weights have no kv_b_scale_inv"),
        (
            {"kv_b": kv_b(dtype=torch.float8_e4m3fn), "kv_b_scale_inv": torch.ones(2, 1)},
            "KVC513 kv_b_scale_inv of the checkpoint is [2, 1], expected [1, 1]",
        ),
    ],
)
def test_weights_that_do_not_fit(weights, words):
    assert refusal(parts, weights).startswith(words)


def test_a_rank_that_does_not_exist():
    assert "holds the heads of 2 ranks; rank 2 is asked for" in refusal(parts, {"kv_b": kv_b(2 * HEADS)}, rank=2)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_scale_is_a_finite_number_above_0(value):
    checkpoint = Checkpoint({"s": torch.tensor(value)}, torch.float32)
    assert refusal(checkpoint.scale, ["s"]).startswith(f"KVC513 scale s of the checkpoint is {value!r}")


def test_scales_of_a_checkpoint():
    names = ["new", "old"]
    assert Checkpoint({"old": torch.tensor([0.5])}, torch.float32).scale(names) == 0.5
    assert Checkpoint({"old": torch.tensor(0.5), "new": torch.tensor(0.5)}, torch.float32).scale(names) == 0.5
    two = Checkpoint({"old": torch.tensor(0.5), "new": torch.tensor(0.25)}, torch.float32)
    assert "new is 0.25, old is 0.5" in refusal(two.scale, names)
    assert refusal(Checkpoint({}, torch.float32).scale, names).startswith("KVC512 the weights have no new")
    assert "a tensor of shape [2]" in refusal(Checkpoint({"new": torch.ones(2)}, torch.float32).scale, names)


def test_a_program_without_its_weights_is_no_cache():
    loaded = artifact("tiny-mla-fp32")
    words = "KVC512 the program needs model.layers.0.self_attn.kv_b_proj.weight of the model's checkpoint"
    assert refusal(loaded.allocate, num_slots=4).startswith(words)


def test_a_folder_of_safetensors(tmp_path):
    loaded = artifact("tiny-mla-fp32")
    weights = dict(random_weights(loaded.program.constants))
    names = list(weights)
    save_file({name: weights[name] for name in names[:1]}, tmp_path / "model-1.safetensors")
    save_file({name: weights[name] for name in names[1:]}, tmp_path / "model-2.safetensors")
    for indexed in (False, True):
        if indexed:
            files = {name: f"model-{1 if name == names[0] else 2}.safetensors" for name in names}
            (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
        folder = kvc.load_weights(tmp_path)
        assert set(folder) == set(names) and len(folder) == len(names)
        cache = loaded.allocate(num_slots=4, weights=folder)
        expected = loaded.allocate(num_slots=4, weights=weights)
        assert all(torch.equal(cache.constants[name], x) for name, x in expected.constants.items())


def test_folders_that_cannot_be_read(tmp_path):
    assert refusal(kvc.load_weights, tmp_path).startswith("KVC514")
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 20)
    assert "cannot be read" in refusal(kvc.load_weights, tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    assert "is no index of safetensors files" in refusal(kvc.load_weights, tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"x": "gone.safetensors"}}')
    assert "cannot be read" in refusal(lambda: kvc.load_weights(tmp_path)["x"])
