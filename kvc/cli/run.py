"""`kvc run`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from kvc.cli.devices import Device, artifact_on, prepare
from kvc.cli.progress import spinner
from kvc.diagnostics import fail

DEFAULT_PROMPT = "The key-value cache of a language model holds"


def run(
    spec: Annotated[str, typer.Argument(metavar="SPEC|DIR", help="a spec file, a library name or an artifact")],
    model: Annotated[str, typer.Option(help="smollm2-135m (fetched once) or a model folder")] = "smollm2-135m",
    prompt: Annotated[str | None, typer.Option(help=f"text to continue [default: {DEFAULT_PROMPT}...]")] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="read the prompt from a UTF-8 file")] = None,
    steps: Annotated[int, typer.Option(min=1, help="tokens to generate at most")] = 64,
    chat: Annotated[bool, typer.Option("--chat", help="wrap the prompt in the model's chat template")] = False,
    check: Annotated[bool, typer.Option("--check", help="compare with the model's own fp32 cache")] = False,
    device: Annotated[Device, typer.Option(help="where model and cache are; cuda replays captured steps")] = Device.CPU,
) -> int:
    """Generate text with a real model whose KV cache is the compiled one.

    A spec is compiled for the device, an artifact must have been.

    Exit code 1 where --check finds that an fp32 cache gives other tokens than the model's own.
    """
    from kvc.integrations.transformers import attach, require_transformers

    require_transformers()
    text = _prompt(prompt, prompt_file)
    with spinner() as report:
        report(f"{'loading' if Path(spec).is_dir() else 'compiling'} {spec}")
        artifact = artifact_on(device, spec)
        folder, loaded = _model(model, artifact.program.dtype, device, report)
    ids = _tokenize(loaded.tokenizer, text, chat)
    limits = artifact.limits
    _check_length(len(ids), steps, limits.max_seq_len)
    with attach(loaded.model, artifact, tokens=len(ids) + steps) as attached:
        runner = attached.runner()
        note = prepare(device, runner, ids)
        generated = _generate(runner, loaded.tokenizer, ids, steps)
    print(_summary(artifact, generated, len(ids)) + note)
    return _check(folder, ids, generated, artifact, device) if check else 0


def _prompt(prompt: str | None, prompt_file: Path | None) -> str:
    if prompt is not None and prompt_file is not None:
        raise fail("KVC607", "both --prompt and --prompt-file were given", help="give one of them")
    if prompt_file is None:
        return DEFAULT_PROMPT if prompt is None else prompt
    try:
        return prompt_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"cannot read the prompt from {prompt_file}: {reason}"
        raise fail("KVC607", message, help="name a UTF-8 text file") from error


def _model(name: str, dtype: str, device: str, report: Any) -> tuple[Path, Any]:
    from kvc.integrations.checkpoints import model_folder
    from kvc.integrations.transformers.loading import convert_gguf, load_model

    folder = model_folder(name, convert_gguf, report)
    report(f"loading {folder.name} in {dtype}")
    return folder, load_model(folder, dtype, device)


def _tokenize(tokenizer: Any, text: str, chat: bool) -> list[int]:
    if chat and not tokenizer.chat_template:
        raise fail("KVC607", "the model has no chat template", help="leave --chat out")
    if chat:
        messages = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, add_special_tokens=not chat).input_ids
    if not ids:
        raise fail("KVC607", "the prompt has no tokens", help="give some text with --prompt or --prompt-file")
    return ids


def _check_length(prompt: int, steps: int, limit: int) -> None:
    if prompt + steps > limit:
        message = f"a prompt of {prompt} tokens and {steps} steps are over the spec's target.max_seq_len {limit}"
        raise fail("KVC608", message, help="shorten the prompt, lower --steps, or raise max_seq_len in the spec")


@dataclass
class _Generated:
    """Tokens, and the seconds that prefill and decoding took."""

    tokens: list[int] = field(default_factory=list)
    prefill: float = 0.0
    decode: float = 0.0


def _generate(runner: Any, tokenizer: Any, ids: Sequence[int], steps: int) -> _Generated:
    """Greedy decoding, each piece of text printed as soon as it is whole."""
    from kvc.integrations.transformers.parity import kvc_continuation

    made, text, printed = _Generated(), "", 0
    started = time.perf_counter()
    for choice in kvc_continuation(runner, ids, steps, sequence="run"):
        if not made.tokens:
            made.prefill = time.perf_counter() - started
        made.tokens.append(choice.token)
        if choice.token == tokenizer.eos_token_id:
            break
        text = tokenizer.decode(made.tokens)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half a character: wait for its other bytes
            print(text[printed:], end="", flush=True)
            printed = len(text)
    made.decode = time.perf_counter() - started - made.prefill
    print(text[printed:])
    return made


def _summary(artifact: Any, made: _Generated, prompt: int) -> str:
    decoded = len(made.tokens) - 1  # the first token comes with the prefill
    rates = [f"prefill {prompt} tokens at {prompt / made.prefill:,.0f} tokens/s"]
    if decoded:
        rates.append(f"decode {decoded} tokens at {decoded / made.decode:,.1f} tokens/s")
    return f"\n{artifact.plan.name}: {', '.join(rates)}"


def _check(folder: Path, ids: Sequence[int], made: _Generated, artifact: Any, device: str) -> int:
    """Compare with the same model, in fp32, on its own cache; 1 if the cache promises equality and did not keep it."""
    from kvc.integrations.transformers.loading import load_model
    from kvc.integrations.transformers.parity import first_divergence, own_continuation

    loaded = load_model(folder, "fp32", device)
    expected = list(own_continuation(loaded.model, ids, len(made.tokens)))
    found = first_divergence(expected, made.tokens)
    if found is None:
        print(f"check: all {len(made.tokens)} tokens equal those of the model's own fp32 cache")
        return 0
    words = [loaded.tokenizer.decode([token]) for token in (found.expected, found.got)]
    print(
        f"check: differs from the model's own fp32 cache at token {found.step + 1} of {len(made.tokens)}: "
        f"{words[0]!r} there, {words[1]!r} here; the top-2 margin there is {found.margin:.4f} logits"
    )
    return 1 if _is_fp32(artifact) else 0


def _is_fp32(artifact: Any) -> bool:
    encodings = {group.encoding for group in artifact.plan.layer_groups}
    return encodings == {"fp32"} and artifact.program.dtype == "fp32"
