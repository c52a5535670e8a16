"""Codes 1xx: a well-formed spec that contradicts itself or asks for what kvc cannot do."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC101": Code(
        "an unknown encoding",
        "No encoding of that name exists in this version.",
        "cache: {encoding: fp9}",
    ),
    "KVC102": Code(
        "an encoding that the layer cannot use",
        "What a layer kind can store is a row of the capability table: kind, coverage, encoding and activation dtype.",
        "model: {dtype: fp16}, cache: {encoding: bf16}",
    ),
    "KVC103": Code(
        "a layer kind that is not supported yet",
        "The name is reserved for a kind that this version of kvc cannot compile.",
        "- kind: mla",
    ),
    "KVC104": Code(
        "query heads do not divide into KV heads",
        "In grouped-query attention each KV head serves the same number of query heads.",
        "heads: 32\nkv_heads: 5",
    ),
    "KVC105": Code(
        "rope dimensions that cannot be rotated",
        "RoPE rotates pairs: `dim` must be even and at most `head_dim`.",
        "head_dim: 64\nrope: {kind: default, theta: 10000, dim: 96}",
    ),
    "KVC106": Code(
        "a page size that is not supported",
        "`tokens_per_page` is a power of two from 1 to 1024, as kernels and engines (16 in vLLM, 32 in TensorRT-LLM, "
        "64 in FlashMLA) expect.",
        "tokens_per_page: 48",
    ),
    "KVC107": Code(
        "an encoding needs scales",
        "A scale is never implicit: say where it comes from. `unit` is 1.0 for every layer; `values` gives numbers.",
        "cache: {encoding: fp8, tokens_per_page: 32}",
    ),
    "KVC108": Code(
        "scales that nothing uses",
        "No layer that these scales apply to has an encoding with scales, so they would be ignored silently.",
        "cache: {encoding: bf16, scales: {source: unit}}",
    ),
    "KVC109": Code(
        "scale values do not match the layers",
        "A list holds one value a layer it applies to: all layers under `cache`, the named ones in an override.",
        "values: {k: [0.5, 0.5], v: 1.0}  # for 32 layers",
    ),
    "KVC110": Code(
        "retained tokens that the encoding or layer cannot have",
        "`retain` keeps the first and last tokens in a second, more precise pool (a twin). Which pairs of encodings "
        "have one is a column of the capability table.",
        "cache: {encoding: bf16, retain: {first: 64, last: 256, encoding: bf16}}",
    ),
    "KVC111": Code(
        "a coverage that is not supported yet",
        "This version keeps every token of a layer (full coverage); windows and chunks are refused, not ignored.",
        "window: 4096",
    ),
    "KVC112": Code(
        "a layer option that is not supported yet",
        "The option changes what attention computes, so it is refused rather than ignored.",
        "softcap: 50.0",
    ),
    "KVC113": Code(
        "too many layers",
        "A spec may have 100,000 layers, `repeat` multiplied out. Nothing is expanded before this is checked.",
        "repeat: 1000000000",
    ),
    "KVC114": Code(
        "an override names layers that do not exist",
        "Layers are numbered from 0 in the order of the spec, `repeat` multiplied out.",
        'layers: "0-2,60"  # for 32 layers',
    ),
    "KVC115": Code(
        "a layer is named by two overrides",
        "Which one wins would depend on their order. Name each layer once.",
        'overrides: [{layers: "0-3", encoding: bf16}, {layers: "3", encoding: fp8}]',
    ),
    "KVC116": Code(
        "sequences longer than the model's positions",
        "`target.max_seq_len` must not exceed `model.max_position`.",
        "max_position: 8192\nmax_seq_len: 32768",
    ),
    "KVC117": Code(
        "buckets that do not fit the batch size",
        "A generation step is padded up to the next bucket, so buckets ascend and the last one is `max_sequences`.",
        "max_sequences: 8\nbuckets: [1, 2, 4]",
    ),
    "KVC118": Code(
        "an architecture that does not fit the device",
        "`cuda` needs an architecture (`sm_90`), since kernels are chosen by it; a `cpu` has none.",
        "target: {device: cuda}",
    ),
    "KVC119": Code(
        "an unknown compiler pass",
        "`compile.require` names passes that must fire. A pass that this version does not have can never fire.",
        "compile: {require: [fuse_apend]}",
    ),
    "KVC120": Code(
        "a context attention dtype that is not supported yet",
        "`attention.context: act` computes prefill attention in the activation dtype.",
        "attention: {context: fp8}",
    ),
    "KVC121": Code(
        "draft layers are not supported yet",
        "Speculative decoding layers are part of the schema; this version cannot compile them.",
        "draft: {kind: mtp, layers: 1, max_draft_tokens: 3, encoding: fp8}",
    ),
    "KVC122": Code(
        "no memory is left for the cache",
        "The cache may take `(device - reserve) * free_fraction` bytes, which must be positive.",
        "memory: {device: 16GB, reserve: 20GB}",
    ),
    "KVC123": Code(
        "a step too small for the batch",
        "A generation step has one token a sequence, so `max_tokens` must be at least `max_sequences`.",
        "max_sequences: 128\nmax_tokens: 64",
    ),
    "KVC124": Code(
        "rope numbers that contradict each other",
        "The kind interpolates between two limits, which must be apart and in order.",
        "rope: {kind: llama3, low_freq_factor: 4.0, high_freq_factor: 1.0, ...}",
    ),
    "KVC125": Code(
        "an override that changes nothing",
        "It names layers, and neither an encoding nor scales nor retained tokens for them.",
        'overrides: [{layers: "0-3"}]',
    ),
    "KVC126": Code(
        "a table of rotary embeddings that is too large",
        "Cosines and sines of every position up to `target.max_seq_len` are kept in fp32, in at most 16 GiB.",
        "max_position: 1073741824\nmax_seq_len: 1073741824",
    ),
}
