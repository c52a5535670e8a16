"""Codes 5xx: the runtime."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC501": Code(
        "a sequence that is not admitted",
        "Every call but `admit` is about a sequence that was admitted and not released; a preempted one has to be "
        "admitted again, and its tokens computed again, before it can go on.",
        'cache.begin([Request("never admitted", 1)])',
    ),
    "KVC502": Code(
        "a sequence named twice",
        "A sequence is admitted once, and has one request a step.",
        'cache.admit("a")\ncache.admit("a")',
    ),
    "KVC503": Code(
        "over a limit of the program",
        "`max_sequences`, `max_seq_len` and `max_tokens` (tokens of one step) are in the spec under `target`: tables "
        "and buffers are sized by them.",
        'cache.begin([Request("a", tokens=max_tokens + 1)])',
    ),
    "KVC504": Code(
        "a request that cannot be",
        "A step has at least one request, each of at least one token, context requests first; its generation requests "
        "all have the same number of tokens, because they share one graph of fixed shapes. Token ids, of which a "
        "prefix is looked up, are a flat sequence of integers.",
        'Request("a", tokens=-1)',
    ),
    "KVC505": Code(
        "calls in the wrong order",
        "A step is begin, layer for each layer, commit (or abort). While it is open its sequences cannot be extended, "
        "preempted or released. A prefix is asked for right after `admit`, before anything is stored.",
        "cache.layer(0, q, k, v)  # before cache.begin(...)",
    ),
    "KVC506": Code(
        "an input of a layer or graph that does not fit",
        "q, k and v have one row a token of the step (or a padded token), the heads and dimensions of the spec and the "
        "activation dtype of the model; the layer index is below the number of layers.",
        "cache.layer(0, q.half(), k.half(), v.half())  # of a bf16 model",
    ),
    "KVC507": Code(
        "accepted tokens that were not scheduled",
        "commit accepts at most the tokens that the step scheduled for a sequence, and no length whose pages were "
        "dropped because nothing said that the tokens might be rolled back.",
        'cache.commit(step, accepted={"a": 5})  # of 4 tokens',
    ),
    "KVC508": Code(
        "a cache that cannot be allocated",
        "Say how large the cache is in exactly one way (`num_slots`, `tokens` or `memory`), large enough for one page "
        "of every lifecycle and small enough for the device. It is allocated where the spec's target says, or on "
        "`device=`. `rank=` is one of the spec's tensor parallel ranks.",
        "artifact.allocate(num_slots=0)",
    ),
    "KVC509": Code(
        "a constant differs from the artifact's",
        "The artifact holds the sha256 of each rope table. A math library that rounds one cosine otherwise gives "
        "another table: the cache works, but its bytes may differ by an ulp from those of a machine with the recorded "
        "one. It is a warning.",
    ),
    "KVC510": Code(
        "out of pages",
        "The free slots do not hold the step. The exception says what is needed and free in each pool group, which "
        "part of the step fits now (`fitting`), and who could be preempted (`holders`). Nothing has changed.",
        'cache.begin([kvc.Request("a", tokens=48)])  # with 2 free slots of 16 tokens',
    ),
    "KVC511": Code(
        "a program that needs a newer runtime",
        "The step buffer of the program has a section that this version does not know how to fill.",
    ),
    "KVC512": Code(
        "weights that are missing",
        "Latent attention is bound to W_UK and W_UV of the model, and `scales: {source: checkpoint}` to numbers in its "
        "checkpoint. The manifest names every tensor under `program.constants`; there is no default for any.",
        "kvc.load(directory).allocate(tokens=4096)  # without weights=...",
    ),
    "KVC513": Code(
        "a tensor of the checkpoint that does not fit",
        "Its shape is not that of the spec's layer (of this rank, or of all), its numbers are of another kind, a scale "
        "is not one finite number above 0, or two names of one scale have two values.",
        'weights = {**model.state_dict(), "model.layers.0.self_attn.k_scale": torch.tensor(0.0)}',
    ),
    "KVC514": Code(
        "a folder of weights that cannot be read",
        "It has no safetensors files, one that is damaged, or without an index two that hold the same tensor.",
        'kvc.load_weights("an/empty/folder")',
    ),
    "KVC520": Code(
        "capture: a tensor without a rule",
        "In a captured callable every tensor is static (registered, address fixed), copied each step, or derived by an "
        "op of the graph. Any other would keep the value it had at capture: stale metadata, silently.",
        "runner.capture(8, lambda: x @ w, static={}, copied={'x': x})  # w is not registered",
    ),
    "KVC521": Code(
        "capture: the host reads a tensor",
        "A value read by Python decides once, at capture; replays would go on with it.",
        "if lengths.max() > 0: ...",
    ),
    "KVC522": Code(
        "capture: random numbers",
        "A replay would need the generator's state of each step. Sample outside the captured callable.",
        "torch.multinomial(probabilities, 1)",
    ),
    "KVC523": Code(
        "capture: no fixed shape",
        "A captured graph has fixed memory: no result whose shape depends on data, no shape changed in place.",
        "x[x > 0]",
    ),
    "KVC524": Code(
        "replay: not what was captured",
        "A static or copied tensor has moved or was replaced, a copied value is missing or has another shape, or an op "
        "now returns another shape.",
        "runner.replay(8, {})  # no value for x",
    ),
    "KVC525": Code(
        "a bucket or tensor that cannot be captured",
        "A bucket is captured once and replayed after that; registered tensors are on one CPU or GPU, each "
        "either static or copied.",
        "runner.replay(16, values)  # only 8 is captured",
    ),
    "KVC526": Code(
        "a step that the capture plan does not cover",
        "`capture_cuda_graphs` writes a plan into the program: the buckets, and for every input of a generation step "
        "whether it is static, copied each step or derived. Other steps run uncaptured.",
        "capture_inputs(cache, (3, 1))  # the plan has buckets 1, 2 and 4",
    ),
    "KVC527": Code(
        "draft layers that have missed tokens",
        "A step may leave the draft layers out (`domains`). What they have not stored they can never read, so they see "
        "no later token of those sequences either, and keep no page of them, until the sequence is preempted and its "
        "tokens are computed again.",
        'cache.begin([Request("a", 1, "generation")])  # after begin(..., domains=["target"])',
    ),
    "KVC528": Code(
        "a length that nothing corrects",
        "`advance` ends a step before the host knows what was accepted; the next step corrects lengths on the device. "
        "Programs of specs with `draft:` can do that, for one step at a time: settle it before the next is advanced.",
        "cache.advance(step)  # compiled without draft:",
    ),
    "KVC529": Code(
        "an op that a CUDA graph cannot hold",
        "While a graph is captured nothing may wait for the device (`.item()`, a blocking copy, printing), and memory "
        "comes from the graph's own pool. The message names the op that was running when the driver refused.",
        "runner.capture(4, lambda: x[x > 0], static={}, copied={'x': x})  # in a custom op's own implementation",
    ),
}
