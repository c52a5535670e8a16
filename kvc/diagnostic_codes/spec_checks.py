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
        "A layer kind that can be planned (`kvc plan` counts its bytes) and not compiled yet: lowering to graphs reads "
        "the capability table, and it has no row of this kind.",
        "kvc compile deepseek-v3.2  # kind: mla_sparse",
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
        "A scale is never implicit: say where it comes from. `unit` is 1.0 for every layer; `values` gives numbers; "
        "`checkpoint` reads them from the model's weights.",
        "cache: {encoding: fp8, tokens_per_page: 32}",
    ),
    "KVC108": Code(
        "scales that nothing uses",
        "No layer that these scales apply to has an encoding with scales, or under `attention` nothing is quantized: "
        "they would be ignored silently.",
        "cache: {encoding: bf16, scales: {source: unit}}",
    ),
    "KVC109": Code(
        "scale values do not match the layers",
        "A list holds one value a layer it applies to: all layers under `cache`, the named ones in an override, those "
        "of the model and then the draft layers under `attention`.",
        "values: {k: [0.5, 0.5], v: 1.0}  # for 32 layers",
    ),
    "KVC110": Code(
        "retained tokens that the encoding or layer cannot have",
        "`retain` keeps the first and last tokens in a second, more precise pool (a twin). Which pairs of encodings "
        "have one is a column of the capability table.",
        "cache: {encoding: bf16, retain: {first: 64, last: 256, encoding: bf16}}",
    ),
    "KVC111": Code(
        "a coverage that cannot be compiled yet",
        "Windows, chunks and compressed rows are planned; a graph that would keep every token instead is refused, not "
        "compiled. `docs/support.md` lists what is compiled.",
        "kvc compile gpt-oss-20b  # window: 128",
    ),
    "KVC112": Code(
        "a layer option that cannot be compiled yet",
        "The option changes what attention computes, so it is refused rather than ignored. It does not change bytes: "
        "`kvc plan` accepts it.",
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
        "fp8 context attention that cannot be compiled yet",
        "`attention.context: act` computes prefill attention in the activation dtype, `fp8` on quantized Q, K and V. "
        "Which kinds of layers can do the latter is a column of the capability table.",
        "attention: {context: fp8, scales: {source: unit}}  # of gqa layers",
    ),
    "KVC121": Code(
        "draft layers cannot be compiled yet",
        "Speculative decoding layers are planned, with caches of their own; this version cannot compile them.",
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
    "KVC127": Code(
        "an index key that the encoding cannot store",
        "An indexer's keys are stored as `index_key` (e4m3, one fp32 scale per 128), or as bf16 or fp32 for parity.",
        "indexer: {heads: 64, head_dim: 128, top_k: 2048, encoding: nvfp4}",
    ),
    "KVC128": Code(
        "a mixed cache without its retained tokens",
        "`mixed_nvfp4_fp8` is short for encoding nvfp4 with first and last tokens retained in fp8. How many they are "
        "is never implicit, and `retain.encoding` must not say something else.",
        "cache: {encoding: mixed_nvfp4_fp8}",
    ),
    "KVC129": Code(
        "retained tokens without an encoding",
        "`retain` must say how the twin stores its rows, unless the name of the cache's encoding does.",
        "retain: {first: 64, last: 256}",
    ),
    "KVC130": Code(
        "scales that do not match the fields",
        "Each field of a row that has a scale needs a number: `k` and `v` of gqa layers; of mla layers `latent`, whose "
        "scale the rope shares, and `rope` where the encoding gives it its own; of fp8 context attention `q`, "
        "`k` and `v`.",
        "scales: {source: values, values: {k: 0.5}}  # v is missing",
    ),
    "KVC131": Code(
        "windows that contradict each other",
        "A layer reads a sliding window or chunks, not both; `keep_first` keeps first tokens beside a window.",
        "window: 128\nchunk: 8192",
    ),
    "KVC132": Code(
        "state heads that do not divide into groups",
        "Heads of a recurrent layer share B and C (Mamba-2) or keys (gated delta net) in equal groups.",
        "variant: gated_delta_net\nkey_heads: 16\nvalue_heads: 24",
    ),
    "KVC133": Code(
        "parts of a deepseek_v4 layer that do not fit",
        "The key head is a plain and a rotated part, and an indexer chooses compressed rows.",
        "head_dim: 64\nqk_rope_head_dim: 64",
    ),
    "KVC134": Code(
        "pages that do not hold whole compressed groups",
        "A page holds the compressed rows of its own tokens, so `tokens_per_page` is a multiple of every ratio.",
        "tokens_per_page: 64  # with compressor: {ratio: 128}",
    ),
    "KVC135": Code(
        "K and V that cannot be shared",
        "`shares_kv_of` names an earlier gqa layer, with K and V of its own, equal in dimensions and coverage.",
        "shares_kv_of: 40  # in layer 30",
    ),
    "KVC136": Code(
        "a shared indexer without an owner",
        "`shared: true` takes the tokens chosen by the nearest earlier indexer, so the first one cannot be shared.",
        "indexer: {..., shared: true}  # in the first layer",
    ),
    "KVC137": Code(
        "draft layers that are not known",
        "Without `draft.layer`, a draft layer is the last attention layer of the model.",
        "draft: {kind: mtp, ...}  # of a model that is recurrent throughout",
    ),
    "KVC138": Code(
        "heads that tensor parallelism does not divide",
        "Every rank takes an equal part of the heads. KV heads (and groups of Mamba-2) are copied where there are more "
        "ranks than heads; a latent is one row for all heads, so every rank holds all of it.",
        "parallel: {tensor: 6}  # with 64 query heads",
    ),
    "KVC139": Code(
        "a sharded dimension that does not exist",
        "`sharded` is the index of the dimension of a state that tensor parallelism divides, from 0.",
        "{name: state, shape: [16, 64], dtype: fp32, sharded: 2}",
    ),
    "KVC140": Code(
        "an encoding or twin that cannot be compiled yet",
        "The layer can be planned; lowering has no row of its kind and coverage with this encoding, or with this twin. "
        "`docs/support.md` lists what is compiled.",
        "kvc compile SPEC  # cache: {encoding: nvfp4}",
    ),
    "KVC141": Code(
        "a row that the encoding has no layout for",
        "Encodings store whole groups of values (nvfp4: 16 a scale), and the DeepSeek row formats have one width.",
        "head_dim: 40  # under nvfp4",
    ),
    "KVC142": Code(
        "an indexer whose RoPE is not known",
        "A layer's RoPE rotates the first features of its index queries and key too, as many as it rotates of a head. "
        "Which of them pair up is `indexer.rope_layout`, whatever the layer's own layout: half in DeepSeek-V3.2, "
        "interleaved in GLM-5.",
        "indexer: {heads: 64, head_dim: 128, top_k: 2048, encoding: index_key}  # in a layer with rope",
    ),
}
