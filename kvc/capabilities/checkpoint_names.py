"""What checkpoints call the tensors that a program is bound to; `{layer}` is the layer's number in the model."""

# The projection that expands a latent into K and V, [heads * (nope + v), latent].
KV_B = "model.layers.{layer}.self_attn.kv_b_proj.weight"

# Where a quantized weight has the scales of its blocks: 128 x 128 of them share one, as in DeepSeek-V3's checkpoint.
SCALE_SUFFIX = "_scale_inv"
SCALE_BLOCK = 128

# Field -> names of its scale, one number (value = code * scale). The first that a checkpoint has is taken; two that it
# has must be equal. `k_proj.k_scale` is what ModelOpt and vLLM's checkpoints of quantized caches hold, `k_scale` on the
# attention itself what compressed-tensors writes; `latent`, `rope` and `q` of latent attention have no older name.
SCALES: dict[str, tuple[str, ...]] = {
    "k": ("model.layers.{layer}.self_attn.k_proj.k_scale", "model.layers.{layer}.self_attn.k_scale"),
    "v": ("model.layers.{layer}.self_attn.v_proj.v_scale", "model.layers.{layer}.self_attn.v_scale"),
    "q": ("model.layers.{layer}.self_attn.q_proj.q_scale", "model.layers.{layer}.self_attn.q_scale"),
    "latent": ("model.layers.{layer}.self_attn.latent_scale",),
    "rope": ("model.layers.{layer}.self_attn.rope_scale",),
}
