"""What checkpoints call the tensors that a program is bound to; `{layer}` is the layer's number in the model."""

_ATTENTION = "model.layers.{layer}.self_attn."

# The projection that expands a latent into K and V, [heads * (nope + v), latent].
KV_B = f"{_ATTENTION}kv_b_proj.weight"

# Where a quantized weight has the scales of its blocks: 128 x 128 of them share one, as in DeepSeek-V3's checkpoint.
SCALE_SUFFIX = "_scale_inv"
SCALE_BLOCK = 128


def _named(*ends: str) -> tuple[str, ...]:
    return tuple(_ATTENTION + end for end in ends)


# Kind of layer -> field -> names of its scale, one number (value = code * scale). The first that a checkpoint has is
# taken; all that it has must be equal. In the order of writers: ModelOpt, compressed-tensors, Quark.
_GQA = {
    "q": _named("q_proj.q_scale", "q_scale", "q_proj.output_scale"),
    "k": _named("k_proj.k_scale", "k_scale", "k_proj.output_scale"),
    "v": _named("v_proj.v_scale", "v_scale", "v_proj.output_scale"),
}
# Existing checkpoints of latent attention call the scale of the cached row `k_scale`, since it is the K of absorbed
# attention: vLLM and SGLang read it as that. It is not the scale of the K of context attention, which is expanded from
# the row; nobody measures that one yet, so `q`, `k` and `v` have names that cannot be taken for it.
_LATENT = {
    "latent": _named("k_proj.k_scale", "k_scale", "kv_a_proj_with_mqa.k_scale", "latent_scale"),
    "rope": _named("rope_scale"),
    "q": _named("context_q_scale"),
    "k": _named("context_k_scale"),
    "v": _named("context_v_scale"),
}
SCALES: dict[str, dict[str, tuple[str, ...]]] = {"gqa": _GQA, "mla": _LATENT, "mla_sparse": _LATENT}
