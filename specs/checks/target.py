"""Rules about what is compiled: target, memory, passes, and parts that are not supported yet."""

from collections.abc import Iterator
from itertools import pairwise

from kvc.capabilities import ARCHS, MAX_ROPE_TABLE, PASSES
from kvc.specs.checks.layers import rotated, with_rope
from kvc.specs.checks.rule import Hit, Rule
from kvc.specs.models import Spec
from kvc.specs.suggestions import listed, nearest, shortened


def _sequence_length(spec: Spec) -> Iterator[Hit]:
    length, limit = spec.target.max_seq_len, spec.model.max_position
    if length > limit:
        message = f"sequences of {length:,} tokens, but the model has {limit:,} positions"
        yield Hit(("target", "max_seq_len"), message, f"write at most {limit}")


def _buckets(spec: Spec) -> Iterator[Hit]:
    buckets, most = spec.target.buckets, spec.target.max_sequences
    if buckets is None:
        return
    if any(before >= after for before, after in pairwise(buckets)):
        sorted_once = ", ".join(map(str, sorted(set(buckets))))
        yield Hit(("target", "buckets"), "buckets must ascend", f"write [{sorted_once}]")
    elif buckets[-1] != most:
        message = f"the last bucket is {buckets[-1]}, but a step has up to {most} sequences"
        yield Hit(("target", "buckets", len(buckets) - 1), message, f"end with `max_sequences`, {most}")


def _arch(spec: Spec) -> Iterator[Hit]:
    device, arch = spec.target.device, spec.target.arch
    if device == "cuda" and arch is None:
        yield Hit(("target", "arch"), "device `cuda` needs `arch`", f"add one of {listed(ARCHS)}")
    elif device == "cpu" and arch is not None:
        yield Hit(
            ("target", "arch"),
            f"a cpu has no architecture `{shortened(arch)}`",
            "remove `arch`, or write `device: cuda`",
        )
    elif arch is not None and arch not in ARCHS:
        yield Hit(("target", "arch"), f"unknown architecture `{shortened(arch)}`", nearest(arch, ARCHS))


def _step_size(spec: Spec) -> Iterator[Hit]:
    tokens, sequences = spec.target.max_tokens, spec.target.max_sequences
    if tokens < sequences:
        message = f"a step of {tokens} tokens cannot hold one token of each of {sequences} sequences"
        yield Hit(("target", "max_tokens"), message, f"write at least {sequences}")


def _rope_table(spec: Spec) -> Iterator[Hit]:
    length = spec.target.max_seq_len
    dims = [layer.rope.dim or rotated(layer)[1] for _, layer in with_rope(spec)]
    row_bytes = 4 * max(dims, default=0)
    if length * row_bytes > MAX_ROPE_TABLE:
        message = f"the RoPE table of {length:,} positions takes {length * row_bytes:,} bytes"
        yield Hit(("target", "max_seq_len"), message, f"write at most {MAX_ROPE_TABLE // row_bytes}")


def _memory(spec: Spec) -> Iterator[Hit]:
    memory = spec.memory
    if memory and memory.reserve >= memory.device:
        field = "reserve" if memory.reserve else "device"
        message = f"{memory.device:,} bytes less a reserve of {memory.reserve:,} leave nothing for the cache"
        yield Hit(("memory", field), message, "write a smaller `reserve` or a larger `device`")


def _passes(spec: Spec) -> Iterator[Hit]:
    for index, name in enumerate(spec.compile.require):
        if name not in PASSES:
            message = f"unknown pass `{shortened(name)}`"
            yield Hit(("compile", "require", index), message, nearest(name, PASSES, "passes"))


def _engine_context(spec: Spec) -> Iterator[Hit]:
    if spec.attention.kernel == "engine" and spec.attention.context == "fp8":
        message = "`context: fp8` is computed by kvc's attention, and the engine brings its own"
        yield Hit(("attention", "context"), message, "remove `context` and `scales`, or write `kernel: kvc`")


RULES: tuple[Rule, ...] = (
    Rule("KVC116", "sequences fit the model's positions", _sequence_length),
    Rule("KVC117", "buckets ascend to max_sequences", _buckets),
    Rule("KVC118", "the architecture fits the device", _arch),
    Rule("KVC119", "required passes exist", _passes),
    Rule("KVC122", "memory is left for the cache", _memory),
    Rule("KVC126", "the table of rotary embeddings is bounded", _rope_table),
    Rule("KVC161", "an engine's attention has no fp8 context of kvc's", _engine_context),
    Rule("KVC123", "a step holds one token of each sequence", _step_size),
)
