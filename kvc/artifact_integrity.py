"""Whether the plan and the program of an artifact mean the same layers: what each says alone is checked elsewhere."""

from collections.abc import Iterator
from typing import Any

from kvc.encodings import ENCODINGS
from kvc.graphs.program import Binding, Program
from kvc.plan.buffers import twin_coverage
from kvc.plan.types import Lifecycle, Plan
from kvc.specs.resolved import Coverage


def unlike_signatures(plan: Plan, program: Program) -> Iterator[str]:
    """Layers whose pools come and go, or whose scales are made, otherwise than their graphs take for granted."""
    for binding in program.bindings:
        signature = program.signatures[binding.signature]
        for role, (pool, _) in binding.pools.items():
            lifecycle = plan.lifecycles[plan.pools[pool].lifecycle]
            for what, said, wanted in _compared(role, lifecycle, signature):
                if said != wanted:
                    of_layer = f"layer {binding.layer}: {what} of its {role}"
                    yield f"{of_layer} is {said} in the plan, {wanted} in its signature"
        yield from _other_codecs(program, binding, signature)


def _compared(role: str, lifecycle: Lifecycle, signature: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(what, as the plan has it, as the signature has it)."""
    yield "tokens_per_page", lifecycle.tokens_per_page, signature["tokens_per_page"]
    yield "domain", lifecycle.domain, signature["domain"]
    retain = signature.get("retain")
    if role != "twin":
        yield "coverage", str(lifecycle.coverage), signature["coverage"]
    elif retain is None:
        yield "coverage", str(lifecycle.coverage), "none: nothing is retained"
    else:
        kept = twin_coverage(Coverage(ratio=lifecycle.coverage.ratio), retain["first"], retain["last"])
        yield "coverage", _whole(lifecycle.coverage), _whole(kept)


def _whole(coverage: Coverage) -> str:
    """With its first tokens, which `str` leaves out."""
    return f"{coverage}, first {coverage.keep_first}"


def _other_codecs(program: Program, binding: Binding, signature: dict[str, Any]) -> Iterator[str]:
    """Scale operands are numbers of a codec: under another one's, values would silently be of another size."""
    wanted = _codecs("scale.", signature["encoding"]) | _codecs(
        "scale.twin_", (signature.get("retain") or {}).get("encoding")
    )
    for placeholder, constant in binding.constants.items():
        params = program.constants[constant].params
        codec = wanted.get(placeholder)
        if codec is not None and params.get("codec") != codec:
            yield f"layer {binding.layer}: {placeholder} is for {params.get('codec')}, its rows are {codec}"


_FIELDS = ("k", "v", "latent", "rope")


def _codecs(prefix: str, encoding: str | None) -> dict[str, str]:
    """Placeholder of a scale -> the codec that it is for."""
    if encoding not in ENCODINGS:
        return {}
    return {f"{prefix}{field}": ENCODINGS[encoding].codec_of(field) for field in _FIELDS}
