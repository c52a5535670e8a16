"""KVC15x: what `kvc init` says about a Hugging Face config."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC150": Code(
        "a config that cannot be read",
        "There is no such file, it may not be read, or it is far larger than any config.json. Name the config.json "
        "of a model, or the folder that holds it.",
        "kvc init --from-hf model.safetensors",
    ),
    "KVC151": Code(
        "a config that is not JSON",
        "A config.json is UTF-8 text with one JSON object, in which every key stands once: readers disagree about "
        "which of two equal keys counts.",
        '{"head_dim": 64, "head_dim": 128}',
    ),
    "KVC152": Code(
        "JSON that is not a model's config",
        "A config is an object that names its `model_type`; a tokenizer's or a generation config does not.",
        '[{"model_type": "llama"}]',
    ),
    "KVC153": Code(
        "an unknown family of models",
        "How layers follow from fields is known per `model_type`. A model whose code is that of a known family can "
        "be imported under its name; another needs a spec written by hand.",
        '"model_type": "lama"',
    ),
    "KVC154": Code(
        "a field that the family does not know",
        "Each family lists the fields that its cache follows from and those that do not touch it. A field in "
        "neither list may change the cache, so it is not passed over in silence: `--ignore-field NAME` says that "
        "it does not matter.",
        '"layer_sharing": 2',
    ),
    "KVC155": Code(
        "a field that is missing",
        "The field is left out or null, and neither the family's class nor its code has a rule for that. Nothing "
        "is guessed: hidden_size / num_attention_heads is not the width of a head in every family.",
        '"model_type": "qwen3"  (without head_dim)',
    ),
    "KVC156": Code(
        "a field with a value that it cannot have",
        "Sizes are positive integers, lists are lists, and a window is a number of tokens; the message says which.",
        '"num_key_value_heads": -8',
    ),
    "KVC157": Code(
        "fields that contradict each other",
        "Two fields say different things about the same layers, such as `layer_types` with fewer entries than "
        "there are layers, or sliding layers without the size of their window.",
        '"num_hidden_layers": 24, "layer_types": ["full_attention"]',
    ),
    "KVC158": Code(
        "a rotary embedding that specs do not have",
        "The spec language has default, linear, llama3 and yarn. The bytes of a cache do not depend on it, so a "
        "plan can be had with `--ignore-field rope_scaling`; a compiled cache would rotate wrongly.",
        '"rope_scaling": {"rope_type": "longrope"}',
    ),
    "KVC159": Code(
        "an option of `kvc init` that cannot be followed",
        "The output file exists (`--force` replaces it) or cannot be written, or `--ignore-field` names a field "
        "that the config does not have.",
        "kvc init --from-hf config.json -o spec.yaml  # twice",
    ),
}
