"""W_UK and W_UV of a checkpoint: by name, whole or of one rank, plain or in fp8 blocks."""

import pytest
import torch
from cache_harness import artifact

from kvc.compiler import compile_spec
from kvc.diagnostics import KvcError
from kvc.runtime.loader import LoadedArtifact
from kvc.runtime.random_weights import random_weights
from kvc.runtime.weights import Checkpoint

HEADS, NOPE, WIDTH, LATENT = 3, 5, 4, 7
ROWS = HEADS * (NOPE + WIDTH)
PARAMS = {"tensor": "kv_b", "heads": HEADS, "nope": NOPE, "v": WIDTH, "latent": LATENT, "ranks": 1}
E4M3 = torch.float8_e4m3fn


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def parts(weights, dtype=torch.float32, rank=0, **params):
    checkpoint = Checkpoint(weights, dtype, rank)
    return [checkpoint.kv_b_part({**PARAMS, **params, "part": part}) for part in ("w_uk", "w_uv")]


def refusal(call, *args, **kwargs):
    with pytest.raises(KvcError) as caught:
        call(*args, **kwargs)
    (found,) = caught.value.diagnostics
    return f"{found.code} {found.message} | {found.help}"


def naive(whole, heads=HEADS):
    """W_UK and W_UV by a loop over single numbers."""
    w_uk, w_uv = torch.empty(heads, NOPE, LATENT), torch.empty(heads, LATENT, WIDTH)
    for row in range(heads * (NOPE + WIDTH)):
        head, at = divmod(row, NOPE + WIDTH)
        for column in range(LATENT):
            if at < NOPE:
                w_uk[head, at, column] = whole[row, column]
            else:
                w_uv[head, column, at - NOPE] = whole[row, column]
    return [w_uk, w_uv]


def test_the_parts_are_views_of_the_heads():
    whole = normal(ROWS, LATENT)
    found = parts({"kv_b": whole})
    assert all(map(torch.equal, found, naive(whole)))
    assert {x.untyped_storage().data_ptr() for x in found} == {whole.untyped_storage().data_ptr()}


def test_a_parameter_is_taken_without_its_gradient():
    assert not any(x.requires_grad for x in parts({"kv_b": torch.nn.Parameter(normal(ROWS, LATENT))}))


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_takes_its_heads(rank):
    whole = normal(3 * ROWS, LATENT)
    own = whole[rank * ROWS : (rank + 1) * ROWS]
    for weights in ({"kv_b": whole}, {"kv_b": own}):
        assert all(map(torch.equal, parts(weights, rank=rank, ranks=3), naive(own)))


@pytest.mark.parametrize("given", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes_are_cast(given):
    whole = normal(ROWS, LATENT, dtype=given)
    found = parts({"kv_b": whole}, torch.bfloat16)
    assert all(map(torch.equal, found, [x.bfloat16() for x in naive(whole)]))
    assert [x.dtype for x in found] == [torch.bfloat16] * 2


@pytest.mark.parametrize(("rows", "columns"), [(150, 130), (128, 256), (1, 300), (257, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fp8_blocks_are_dequantized(rows, columns, dtype):
    """Against a loop over single numbers, in fp32 and rounded once, with blocks cut off at both ends."""
    codes = normal(rows, columns, dtype=E4M3)
    blocks = normal(-(-rows // 128), -(-columns // 128)).abs() + 0.01
    sizes = {"heads": 1, "nope": rows, "v": 0, "latent": columns}
    w_uk, _ = parts({"kv_b": codes, "kv_b_scale_inv": blocks}, dtype, **sizes)
    for row in {*range(0, rows, 7), rows - 1}:
        for column in {*range(0, columns, 5), columns - 1}:
            assert w_uk[0, row, column] == (codes[row, column].float() * blocks[row // 128, column // 128]).to(dtype)


def test_fp8_blocks_are_those_of_the_whole_matrix():
    """A rank whose rows begin inside a block."""
    codes, blocks = normal(10 * ROWS, LATENT, dtype=E4M3), normal(3, 1).abs() + 0.01
    whole = codes.float() * blocks.repeat_interleave(128, 0)[: 10 * ROWS]
    found = parts({"kv_b": codes, "kv_b_scale_inv": blocks}, rank=5, ranks=10)
    assert all(map(torch.equal, found, naive(whole[5 * ROWS : 6 * ROWS])))
    assert found[0].untyped_storage().nbytes() == ROWS * LATENT * 4, "of this rank's heads alone"


def test_block_scales_may_be_powers_of_two_alone():
    codes, powers = normal(ROWS, LATENT, dtype=E4M3), torch.full((1, 1), 0.25)
    found = parts({"kv_b": codes, "kv_b_scale_inv": powers.to(torch.float8_e8m0fnu)})
    assert all(map(torch.equal, found, naive(codes.float() * 0.25)))


def quantized(blocks):
    return {"kv_b": normal(ROWS, LATENT, dtype=E4M3), "kv_b_scale_inv": blocks}


UNFIT = "give the weights of the model that the spec describes"


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"kv_b": normal(ROWS, 8)}, "has 8 on axis 1, expected 7"),
        ({"kv_b": normal(ROWS - 1, LATENT)}, "has 26 on axis 0, expected 27, or 54 for all 2 ranks"),
        ({"kv_b": normal(3 * ROWS, LATENT)}, "has 81 on axis 0, expected 27, or 54 for all 2 ranks"),
        ({"kv_b": normal(LATENT)}, "is [7], expected [27, 7], or 54 for all 2 ranks"),
        ({"kv_b": normal(ROWS, LATENT).int()}, "holds torch.int32, expected 16-bit or wider floats, or float8_e4m3fn"),
        ({"kv_b": normal(ROWS, LATENT, dtype=torch.float8_e5m2)}, "holds torch.float8_e5m2, expected 16-bit or wider"),
        ({"kv_b": normal(ROWS, LATENT).to("meta")}, "is a tensor without data"),
        ({"kv_b": normal(ROWS, LATENT).to_sparse()}, "is torch.sparse_coo, expected dense"),
        ({"kv_b": [1.0]}, "is a list, expected a tensor"),
    ],
)
def test_weights_that_do_not_fit(weights, words):
    found = refusal(parts, weights, ranks=2)
    assert found.startswith(f"KVC513 kv_b of the checkpoint {words}") and found.endswith(UNFIT)


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (torch.ones(2, 1), "is [2, 1], expected [1, 1]"),
        (torch.ones(1), "is [1], expected [1, 1]"),
        (torch.full((1, 1), float("nan")), "holds other numbers than finite ones above 0"),
        (torch.full((1, 1), float("inf")), "holds other numbers than finite ones above 0"),
        (torch.zeros(1, 1), "holds other numbers than finite ones above 0"),
        (torch.ones(1, 1, dtype=torch.int64), "holds other numbers than finite ones above 0"),
    ],
)
def test_block_scales_that_do_not_fit(blocks, words):
    assert refusal(parts, quantized(blocks)).startswith(f"KVC513 kv_b_scale_inv of the checkpoint {words}")


def test_fp8_weights_need_block_scales():
    weights = {"kv_b.weight": normal(ROWS, LATENT, dtype=E4M3), "kv_b.weight_scale": torch.ones(1)}
    found = refusal(parts, weights, tensor="kv_b.weight")
    assert found == "KVC512 the weights have no kv_b.weight_scale_inv | the nearest name is kv_b.weight_scale"


@pytest.mark.parametrize("rank", [-1, 2, True, 0.0])
def test_a_rank_that_does_not_exist(rank):
    words = f"KVC508 rank={rank!r} of 2 tensor parallel | the ranks are 0 to 1"
    assert refusal(parts, {"kv_b": normal(2 * ROWS, LATENT)}, rank=rank, ranks=2) == words


def test_a_rank_of_a_spec_without_ranks():
    words = "KVC508 rank=1 of 1 tensor parallel | the ranks are 0: the spec has no tensor parallelism"
    assert refusal(parts, {"kv_b": normal(ROWS, LATENT)}, rank=1) == words


def test_a_program_without_its_weights_is_no_cache():
    loaded, name = artifact("tiny-mla-fp32"), "model.layers.{}.self_attn.kv_b_proj.weight"
    names = ", ".join(name.format(layer) for layer in range(3))
    assert refusal(loaded.allocate, num_slots=4) == (
        f"KVC512 the program needs {names} of the model's checkpoint, and no weights are given"
        " | allocate(..., weights=model.state_dict()), or weights=kvc.load_weights(folder)"
    )


def test_all_that_is_missing_is_told_at_once():
    names = [[f"model.layers.{layer}.self_attn.kv_b_proj.weight"] for layer in range(61)]
    given = {"model.layers.1.self_attn.kv_b_proj.bias": torch.ones(1), "layers.0.self_attn.kv_b_proj.weight": 0}
    assert refusal(Checkpoint(given, torch.float32).require, names) == (
        f"KVC512 the weights have no {names[0][0]}, {names[1][0]}, {names[2][0]} and 58 more"
        " | the nearest name is layers.0.self_attn.kv_b_proj.weight"
    )
    one = refusal(Checkpoint({}, torch.float32).require, [["k_scale", "old_k_scale"]])
    assert one == "KVC512 the weights have no k_scale or old_k_scale | "


RANKS = """
kvc: 1
name: ranks
model:
  dtype: fp32
  max_position: 64
  layers:
    - {kind: mla, repeat: 2, heads: 6, kv_lora_rank: 32, qk_nope_head_dim: 16, qk_rope_head_dim: 8, v_head_dim: 16, \
rope: {kind: default, theta: 10000, layout: interleaved}}
cache: {encoding: fp32, tokens_per_page: 16}
parallel: {tensor: %d}
target: {device: cpu, max_sequences: 1, max_seq_len: 64, max_tokens: 32}
"""


def compiled_for(ranks, folder):
    path = folder / f"ranks{ranks}.yaml"
    path.write_text(RANKS % ranks)
    return LoadedArtifact(compile_spec(path).artifact)


def test_ranks_compute_the_heads_of_one(tmp_path):
    """Prefill and a decode step of every rank, joined, against a program for one rank, from the same weights."""
    whole = compiled_for(1, tmp_path)
    weights = random_weights(whole.program.constants)
    inputs = [normal(20, *shape) for shape in ((6, 16), (6, 8), (1, 32), (1, 8))]
    joined = [
        outputs(compiled_for(3, tmp_path), weights, inputs, rank, slice(2 * rank, 2 * rank + 2)) for rank in range(3)
    ]
    torch.testing.assert_close(torch.cat(joined, 1), outputs(whole, weights, inputs, 0, slice(6)), rtol=0, atol=1e-5)


def outputs(loaded, weights, inputs, rank, heads):
    from kvc import Request

    q_nope, q_rope, latent, k_rope = inputs
    own = (q_nope[:, heads], q_rope[:, heads], latent, k_rope)
    cache, out = loaded.allocate(tokens=64, weights=weights, rank=rank), []
    cache.admit("a")
    for request, rows in ((Request("a", 19), slice(19)), (Request("a", 1, "generation"), slice(19, 20))):
        step = cache.begin([request])
        for layer in range(2):
            out.append(cache.layer(layer, *(x[rows] for x in own)))
        cache.commit(step)
    return torch.cat(out)
