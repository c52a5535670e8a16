"""Layers of every kind, and one broken spec a rule about them."""

from dataclasses import dataclass

_LATENT = "heads: 4, kv_lora_rank: 64, qk_nope_head_dim: 32, qk_rope_head_dim: 16, v_head_dim: 32, rope: none"
_STATE = "conv_kernel: 4, state_dtype: fp32, conv_dtype: bf16"
_V4 = "kind: mla_sparse, variant: deepseek_v4, heads: 4, head_dim: 64, qk_rope_head_dim: 16, window: 8, rope: none"
_INDEXER = "indexer: {heads: 2, head_dim: 128, top_k: 8, encoding: index_key}"

LAYERS = {
    "gqa": "kind: gqa, heads: 8, kv_heads: 4, head_dim: 16, rope: none",
    "window": "kind: gqa, heads: 8, kv_heads: 4, head_dim: 16, rope: none, window: 64, keep_first: 4",
    "chunk": "kind: gqa, heads: 8, kv_heads: 4, head_dim: 16, rope: none, chunk: 64",
    "mla": f"kind: mla, {_LATENT}",
    "dsa": f"kind: mla_sparse, variant: dsa, {_LATENT}, {_INDEXER}",
    "v4": f"{_V4}, compressor: {{ratio: 4, overlap: true, state_dtype: fp32}}, {_INDEXER}",
    "v4 window": _V4,
    "mamba2": f"kind: recurrent, variant: mamba2, heads: 8, head_dim: 16, state_dim: 32, groups: 2, {_STATE}",
    "delta": "kind: recurrent, variant: gated_delta_net, key_heads: 4, value_heads: 8, key_head_dim: 16, "
    f"value_head_dim: 32, {_STATE}",
    "kda": f"kind: recurrent, variant: kda, heads: 8, head_dim: 16, {_STATE}",
    "other": "kind: recurrent, variant: other, states: [{name: kv, shape: [8, 16], dtype: fp32, sharded: 0}]",
}


def spec_text(*layers: str, cache: str = "encoding: bf16, tokens_per_page: 16", more: str = "", **numbers: int) -> str:
    """A spec of these layers (names of `LAYERS`, or text); ``more`` sections stand at its end."""
    written = "".join(f"    - {{{LAYERS.get(layer, layer)}}}\n" for layer in layers)
    target = {"max_sequences": 4, "max_seq_len": 1024, "max_tokens": 256} | numbers
    sizes = ", ".join(f"{name}: {number}" for name, number in target.items())
    head = "kvc: 1\nname: kinds\nmodel:\n  dtype: bf16\n  max_position: 1048576\n  layers:\n"
    return f"{head}{written}cache: {{{cache}}}\ntarget: {{device: cpu, {sizes}}}\n{more}\n"


@dataclass(frozen=True)
class Broken:
    """A spec that breaks the rule ``code`` at the text ``at`` (its last occurrence)."""

    code: str
    text: str
    at: str
    message: str
    help: str


def _layer(code: str, layer: str, at: str, message: str, help: str, **other: str) -> Broken:
    return Broken(code, spec_text(layer, **other), at, message, help)


_ROTATED = LAYERS["dsa"].replace("rope: none", "rope: {kind: default, theta: 10000}")
_FP8 = "encoding: fp8, tokens_per_page: 16, scales: {source: unit}"
_MTP = "draft: {kind: mtp, layers: 1, max_draft_tokens: 3, encoding: bf16"

KINDS = (
    _layer("KVC101", LAYERS["dsa"].replace("index_key", "fp9"), "fp9}", "unknown encoding `fp9`", "`index_key`"),
    _layer(
        "KVC102",
        "mla",
        "fp8_ds_mla_v4",
        "rows of a mla layer",
        "`nvfp4_residual`",
        cache="encoding: fp8_ds_mla_v4, tokens_per_page: 16",
    ),
    _layer(
        "KVC104", LAYERS["gqa"].replace("kv_heads: 4", "kv_heads: 3"), "3,", "do not divide into 3 KV heads", "`2`, `4`"
    ),
    _layer(
        "KVC105",
        LAYERS["mla"].replace("rope: none", "rope: {kind: default, theta: 2, dim: 32}"),
        "32}",
        "RoPE over 32 of 16",
        "at most 16",
    ),
    _layer(
        "KVC107",
        "mla",
        "nvfp4",
        "encoding `nvfp4` needs scales",
        "{latent: ...}",
        cache="encoding: nvfp4, tokens_per_page: 16",
    ),
    _layer(
        "KVC107",
        "window",
        "retain",
        "encoding `fp8` of retained tokens needs scales",
        "{k: ..., v: ...}",
        cache="tokens_per_page: 16, encoding: bf16, retain: {first: 4, last: 4, encoding: fp8}",
    ),
    Broken(
        "KVC109",
        spec_text("gqa", more=_MTP.replace("bf16", "fp8") + ", scales: {source: values, values: {k: [1.0], v: 1.0}}}"),
        "k: [1.0]",
        "one scale a field",
        "one number",
    ),
    Broken(
        "KVC141",
        spec_text(
            LAYERS["mla"].replace("qk_rope_head_dim: 16", "qk_rope_head_dim: 8"),
            cache="scales: {source: unit}, tokens_per_page: 16, encoding: nvfp4",
        ),
        "nvfp4",
        "8 values do not divide into groups of 16",
        "nearest: `nvfp4_rope_fp8`, `fp8`, for all layers or for those by an override",
    ),
    _layer(
        "KVC141",
        "dsa",
        "fp8_ds_mla",
        "rows hold 512 latent + 64 rope values, not 64 latent + 16 rope",
        "nearest: `fp8`, `nvfp4_rope_fp8`, for all layers or for those by an override",
        cache="tokens_per_page: 16, encoding: fp8_ds_mla",
    ),
    _layer(
        "KVC127",
        LAYERS["dsa"].replace("index_key", "nvfp4"),
        "nvfp4}",
        "cannot store index keys",
        "`index_key`, `bf16`",
    ),
    _layer("KVC127", LAYERS["dsa"].replace("128", "96"), "96", "index keys of 96", "bf16 and fp32"),
    _layer(
        "KVC128",
        "gqa",
        "mixed_nvfp4_fp8",
        "how many is missing",
        "retain",
        cache="scales: {source: unit}, tokens_per_page: 16, encoding: mixed_nvfp4_fp8",
    ),
    _layer(
        "KVC128",
        "gqa",
        "bf16}}",
        "in fp8, not in bf16",
        "remove",
        cache="scales: {source: unit}, tokens_per_page: 16, encoding: mixed_nvfp4_fp8, "
        "retain: {first: 1, last: 1, encoding: bf16}",
    ),
    _layer(
        "KVC129",
        "gqa",
        "retain",
        "does not say in which encoding",
        "`bf16`",
        cache=f"{_FP8}, retain: {{first: 1, last: 1}}",
    ),
    _layer(
        "KVC130",
        "gqa",
        "values: {k",
        "no scale for `v`",
        "`k`, `v`",
        cache="encoding: fp8, tokens_per_page: 16, scales: {source: values, values: {k: 0.5}}",
    ),
    _layer(
        "KVC130",
        "mla",
        "0.5}",
        "no layer has a scale for `rope`",
        "need `latent`",
        cache="encoding: fp8, tokens_per_page: 16, scales: {source: values, values: {latent: 1.0, rope: 0.5}}",
    ),
    _layer(
        "KVC130",
        "mla",
        "'x.{layer}'}",
        "no layer has a scale for `v`",
        "need `latent`",
        cache="encoding: fp8, tokens_per_page: 16, scales: {source: checkpoint, names: {v: 'x.{layer}'}}",
    ),
    Broken(
        "KVC130",
        spec_text("mla", more="attention: {context: fp8, scales: {source: values, values: {k: 0.5, v: 0.5}}}"),
        "values: {k",
        "no scale for `q`",
        "`q`, `k`, `v`",
    ),
    Broken(
        "KVC130",
        spec_text("mla", more="attention: {context: fp8, scales: {source: checkpoint, names: {rope: 'x.{layer}'}}}"),
        "'x.{layer}'}",
        "no layer has a scale for `rope`",
        "`q`, `k`, `v`",
    ),
    _layer("KVC131", LAYERS["window"] + ", chunk: 32", "32}", "a window of 64 cannot have chunks of 32", "keep"),
    _layer("KVC131", LAYERS["gqa"] + ", keep_first: 5", "5}", "and there is none", "add `window`"),
    _layer(
        "KVC132", LAYERS["delta"].replace("key_heads: 4", "key_heads: 3"), "3,", "do not divide into 3 key heads", "`2`"
    ),
    _layer("KVC132", LAYERS["mamba2"].replace("groups: 2", "groups: 3"), "3,", "into 3 groups", "`2`, `4`"),
    _layer(
        "KVC133",
        LAYERS["v4 window"].replace("qk_rope_head_dim: 16", "qk_rope_head_dim: 64"),
        "64, window",
        "leave none of 64",
        "less than 64",
    ),
    _layer("KVC133", f"{_V4}, {_INDEXER}", "indexer", "there is no compressor", "add `compressor`"),
    _layer(
        "KVC134", LAYERS["v4"].replace("ratio: 4", "ratio: 128"), "128, overlap", "16 tokens does not hold", "multiple"
    ),
    Broken("KVC135", spec_text("gqa", LAYERS["gqa"] + ", shares_kv_of: 1"), "1}", "not before layer 1", "earlier"),
    Broken("KVC135", spec_text("mla", LAYERS["gqa"] + ", shares_kv_of: 0"), "0}", "layer 0 is mla", "earlier"),
    Broken(
        "KVC135",
        spec_text("gqa", "gqa", LAYERS["window"] + ", shares_kv_of: 0"),
        "0}",
        "another `window`",
        "the same KV heads",
    ),
    Broken(
        "KVC135",
        spec_text("gqa", LAYERS["gqa"] + ", shares_kv_of: 0", LAYERS["gqa"] + ", shares_kv_of: 1"),
        "1}",
        "reads those of layer 0",
        "earlier",
    ),
    _layer(
        "KVC136",
        LAYERS["dsa"].replace("index_key", "index_key, shared: true"),
        "true}",
        "no earlier one",
        "shared: false",
    ),
    _layer("KVC142", _ROTATED, "indexer", "which features of the index key pair up", "`half`, `interleaved`"),
    _layer(
        "KVC142",
        _ROTATED.replace("head_dim: 128", "head_dim: 8").replace("index_key", "bf16, rope_layout: half"),
        "8, top_k",
        "rotates 16",
        "16 or more",
    ),
    Broken(
        "KVC137", spec_text("kda", more=_MTP + "}"), "draft: {", "no layer of the model has attention", "draft.layer"
    ),
    Broken("KVC137", spec_text("gqa", more=_MTP + ", tokens_per_page: 48}"), "48}", "pages of 48", "power of two"),
    Broken(
        "KVC137",
        spec_text("gqa", more=_MTP + f", layer: {{{LAYERS['gqa']}, repeat: 2}}}}"),
        "2}}",
        "number of draft layers",
        "remove",
    ),
    Broken(
        "KVC138",
        spec_text(LAYERS["gqa"].replace("kv_heads: 4", "kv_heads: 1"), more="parallel: {tensor: 3}"),
        "8, kv",
        "8 heads do not divide over 3",
        "`4`",
    ),
    Broken(
        "KVC138",
        spec_text(
            LAYERS["gqa"].replace("heads: 8, kv_heads: 4", "heads: 12, kv_heads: 6"), more="parallel: {tensor: 4}"
        ),
        "6, head",
        "6 kv heads neither divide over 4",
        "must divide",
    ),
    Broken("KVC138", spec_text("delta", more="parallel: {tensor: 8}"), "4, value", "4 key heads", "`2`"),
    Broken("KVC138", spec_text("other", more="parallel: {tensor: 16}"), "states", "8 states", "`8`"),
    _layer("KVC139", LAYERS["other"].replace("sharded: 0", "sharded: 2"), "2}", "dimension 2 of 2", "from 0"),
)
