"""SmolLM2-135M on kvc's cache against the same model on its own, on text that ships with Python.

    python -m benchmarks.parity                # everything
    python -m benchmarks.parity --prompts 2    # a quick look

1. Greedy continuations: fp32 must equal the model's own cache token by token; bf16 and fp8 say where they leave it and
   how close a call that was.
2. KL divergence to the fp32 model on one text, given a token a step so that every token is read back, which must stay
   below 0.03 for fp8; and as one prefill, which reads nothing back and must equal kvc's fp32 cache exactly.

Results go to `benchmarks/results/parity.csv`. Exit code 1 where one of the requirements is not met.
"""

import argparse
import csv
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.progress import Progress

import kvc
from kvc.integrations.checkpoints import model_folder
from kvc.integrations.transformers import Runner, attach
from kvc.integrations.transformers.loading import LoadedModel, convert_gguf, load_model
from kvc.integrations.transformers.parity import (
    Divergence,
    decoded_logits,
    first_divergence,
    kl_divergence,
    kvc_continuations,
    own_continuation,
    own_logits,
)
from kvc.runtime.loader import LoadedArtifact

MODEL = "smollm2-135m"
TOPICS = """
assert assignment attribute-access binary bltin-type-objects booleans break calls class comparisons compound
context-managers continue conversions debugger del dict dynamic-features else exceptions execmodel exprlists floating
for formatstrings function global identifiers if imaginary import integers lambda lists naming numbers numeric-types
objects operator-summary pass power raise return sequence-types shifting slicings specialattrs specialnames
string-methods strings subscriptions truth try types typesfunctions typesmapping typesseq unary while with yield
"""
KL_TOPIC = "specialnames"
MAX_KL = 0.03
PAGE = 32  # tokens of a page in the library's specs: what a sequence may waste
PROGRESS = Console(stderr=True)

Row = dict[str, Any]


def main() -> int:
    """Compare, report, store; 1 where a requirement is not met."""
    options = parse_arguments()
    with PROGRESS.status("loading") as status:
        loaded = load_model(model_folder(MODEL, convert_gguf, status.update), "fp32")
    rows: list[Row] = []
    if options.prompts:
        rows += compare_continuations(loaded, options.prompts, options.prompt_tokens, options.steps)
    if options.kl_tokens:
        ids = loaded.tokenizer(topics[KL_TOPIC]).input_ids[: options.kl_tokens]
        rows += compare_logits(loaded, ids, options.kl_encodings)
    write(options.output, rows)
    return 0 if all(row["ok"] != "no" for row in rows) else 1


def parse_arguments() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=20, help="0 leaves the continuations out")
    parser.add_argument("--prompt-tokens", type=int, default=220)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--kl-tokens", type=int, default=2048, help="0 leaves the KL divergence out")
    parser.add_argument("--kl-encodings", nargs="*", default=["fp8"])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "parity.csv")
    return parser.parse_args()


def prompts_of(tokenizer: Any, count: int, tokens: int) -> list[list[int]]:
    """The first ``tokens`` token ids of ``count`` help topics that are at least that long, in the fixed order."""
    encoded = (tokenizer(topics.get(name, "")).input_ids[:tokens] for name in TOPICS.split())
    long_enough = [ids for ids in encoded if len(ids) == tokens]
    if len(long_enough) < count:
        sys.exit(f"Python {platform.python_version()} has {len(long_enough)} topics of {tokens} tokens, not {count}")
    return long_enough[:count]


@contextmanager
def running(loaded: LoadedModel, encoding: str, tokens: int) -> Iterator[Runner]:
    """A runner of the model on a cache of ``tokens`` tokens in ``encoding``."""
    artifact = LoadedArtifact(kvc.compile_spec(f"{MODEL}-{encoding}").artifact)
    with attach(loaded.model, artifact, tokens=tokens) as attached:
        yield attached.runner()


def compare_continuations(loaded: LoadedModel, count: int, tokens: int, steps: int) -> Iterator[Row]:
    """Greedy continuations in each encoding against the model's own cache."""
    prompts = prompts_of(loaded.tokenizer, count, tokens)
    expected = [list(own_continuation(loaded.model, ids, steps)) for ids in watch(prompts, "own cache", count)]
    for encoding in ("fp32", "bf16", "fp8"):
        with (
            running(loaded, encoding, count * (tokens + steps + PAGE)) as runner,
            bar(encoding, count * steps) as progress,
        ):
            got = kvc_continuations(runner, prompts, steps, progress)
        found = [first_divergence(want, [c.token for c in of]) for want, of in zip(expected, got, strict=True)]
        yield from report_divergences(encoding, found, steps)


def report_divergences(encoding: str, found: Sequence[Divergence | None], steps: int) -> Iterator[Row]:
    """Say where continuations part, and give the rows for the CSV."""
    equal, differing = found.count(None), [(index, d) for index, d in enumerate(found) if d]
    say(f"{encoding}: {equal} of {len(found)} continuations of {steps} tokens equal the model's own fp32 cache")
    for index, d in differing:
        say(f"  prompt {index}: differs at token {d.step}; the top-2 margin there is {d.margin:.4f} logits")
    required = ("no" if differing else "yes") if encoding == "fp32" else ""
    yield row(encoding, f"equal continuations of {len(found)} x {steps} tokens", equal, required)
    if differing:
        yield row(encoding, "earliest divergence, token", min(d.step for _, d in differing))
        margin = max(d.margin for _, d in differing)
        yield row(encoding, "largest top-2 margin at a divergence, logits", f"{margin:.4f}")


def compare_logits(loaded: LoadedModel, ids: Sequence[int], encodings: Sequence[str]) -> Iterator[Row]:
    """KL divergence of decoded and prefilled logits against the fp32 model."""
    reference = own_logits(loaded.model, ids)
    for encoding in encodings:
        kl = decoded_kl(loaded, encoding, ids, reference)
        say(f"{encoding}: mean KL to the model's own fp32 cache, {len(ids)} tokens given one a step: {kl:.3g}")
        required = ("yes" if kl < MAX_KL else "no") if encoding == "fp8" else ""
        yield row(encoding, f"mean KL of {len(ids)} tokens given one a step, nats", f"{kl:.3g}", required)
    worst = float((prefill_logits(loaded, "fp8", ids) - prefill_logits(loaded, "fp32", ids)).abs().max())
    say(f"fp8: largest logit difference to kvc's fp32 cache as one prefill of {len(ids)} tokens: {worst}")
    yield row("fp8", "largest logit difference to fp32 as one prefill", worst, "no" if worst else "yes")


def decoded_kl(loaded: LoadedModel, encoding: str, ids: Sequence[int], reference: torch.Tensor) -> float:
    """Mean KL(reference || kvc) in nats where every token is a generation step."""
    with running(loaded, encoding, len(ids)) as runner:
        logits = watch(decoded_logits(runner, ids), f"{encoding}, one a step", len(ids))
        return float(torch.stack([kl_divergence(*pair) for pair in zip(reference, logits, strict=True)]).mean())


def prefill_logits(loaded: LoadedModel, encoding: str, ids: Sequence[int]) -> torch.Tensor:
    """Logits ``[n, vocabulary]`` of one context step over all tokens."""
    with running(loaded, encoding, len(ids)) as runner:
        runner.admit("prefill")
        return runner.step({"prefill": ids}, all_logits=True)["prefill"]


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function told how much more is done: a bar on a terminal, a line at every tenth elsewhere, both on stderr."""
    if PROGRESS.is_terminal:
        with Progress(console=PROGRESS) as progress:
            task = progress.add_task(what, total=total)
            yield lambda more: progress.advance(task, more)
        return
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        before, done = done, done + more
        if before * 10 // total < done * 10 // total:
            print(f"{what}: {done} of {total}", file=sys.stderr, flush=True)

    yield advance


def watch(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
    """The items, with a bar."""
    with bar(what, total) as advance:
        for item in items:
            yield item
            advance(1)


def say(line: str) -> None:
    """Print a result line."""
    print(line, flush=True)


def row(encoding: str, metric: str, value: Any, ok: str = "") -> Row:
    """A line of the result file; ``ok`` is empty where nothing is required."""
    return {
        "model": MODEL,
        "encoding": encoding,
        "metric": metric,
        "value": value,
        "ok": ok,
        "device": "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "kvc": kvc.__version__,
    }


def write(path: Path, rows: Sequence[Row]) -> None:
    """Store the rows as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
