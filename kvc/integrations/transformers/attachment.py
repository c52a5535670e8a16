"""Attaching a transformers model to a kvc cache, and taking it off again."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from kvc import compat
from kvc.diagnostics import KvcError, fail
from kvc.integrations.transformers.boundaries import BOUNDARIES, is_taken_over, take_over
from kvc.integrations.transformers.caches import ForwardCall, GenerateCache, OpenStep, StepCache
from kvc.integrations.transformers.families import Family
from kvc.integrations.transformers.matching import check_match, family_of
from kvc.integrations.transformers.runner import Runner
from kvc.integrations.transformers.side_by_side import SideBySide


def attach(model: PreTrainedModel, artifact: Any, *, tokens: int | None = None) -> "Attachment":
    """Let ``model`` keep its KV cache in kvc, in place, until ``detach()``.

    ``artifact`` is a loaded artifact, for which a cache of ``tokens`` tokens is allocated on the model's device
    (default: one sequence of the longest length; each sequence takes whole pages), or a `kvc.runtime.cache.Cache`.
    Raises KvcError: KVC603 for a family that kvc does not know, KVC604 where model and spec differ, KVC619 if the model
    is attached already.

        with attach(model, kvc.load("smollm2-fp8")) as attached:
            model.generate(**inputs, cache=attached.new_cache())
    """
    family = family_of(model.config)
    if is_taken_over(model):
        raise fail("KVC619", "the model is attached to a kvc cache already", help="detach it first")
    check_match(artifact.program, model, family)
    return Attachment(model, _as_cache(artifact, model, family, tokens))


def attach_side_by_side(model: PreTrainedModel, artifacts: Sequence[Any], *, tokens: int | None = None) -> "Attachment":
    """Let ``model`` run on one cache of ``tokens`` tokens for each of several loaded artifacts of it, see `SideBySide`.

    Raises KvcError as `attach` does.
    """
    family = family_of(model.config)
    for artifact in artifacts:
        check_match(artifact.program, model, family)
    return attach(model, SideBySide([_as_cache(artifact, model, family, tokens) for artifact in artifacts]))


def _as_cache(artifact: Any, model: PreTrainedModel, family: Family, tokens: int | None) -> Any:
    if not hasattr(artifact, "allocate"):
        return artifact
    modules = family.attention_modules(model.base_model)
    weights = BOUNDARIES[family.kind].weights_of(model, artifact.program, modules)
    return artifact.allocate(tokens=tokens or artifact.limits.max_seq_len, device=str(model.device), weights=weights)


class Attachment:
    """A model running on a kvc cache; also a context manager, which detaches at its end."""

    def __init__(self, model: PreTrainedModel, kvc_cache: Any) -> None:
        self.model, self.kvc_cache = model, kvc_cache
        self.base = model.base_model
        self.family = family_of(model.config)
        self.num_layers = len(self.family.attention_modules(self.base))
        self._queries = BOUNDARIES[self.family.kind].queries
        self._opened: OpenStep | None = None
        self._query_scale: Tensor | None = None
        self._arguments = list(inspect.signature(self.base.forward).parameters)
        self._undo = take_over(model, self.family, self)
        for hook in (
            self.base.register_forward_pre_hook(self._before_forward, with_kwargs=True),
            self.base.register_forward_hook(self._after_forward, with_kwargs=True, always_call=True),
        ):
            self._undo.callback(hook.remove)

    def __enter__(self) -> "Attachment":
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def new_cache(self) -> GenerateCache:
        """A cache for one ``generate(..., cache=...)`` call or for forwards that continue each other.

        Its sequences are released by its ``reset()`` and when it is garbage.
        """
        return GenerateCache(self.kvc_cache, self.num_layers)

    def runner(self) -> Runner:
        """Continuous batching: packed steps over sequences of different lengths."""
        return Runner(self.model, self.kvc_cache, self.num_layers)

    def detach(self) -> None:
        """Give the model its own attention and rotary embedding back; does nothing the second time."""
        self._undo.close()

    def attend(self, layer: int, *inputs: Tensor) -> Tensor:
        """One layer of the step in progress, see `owners.Attends`."""
        assert self._opened is not None, "attention runs inside the forward that opened the step"
        packing = self._opened.packing
        if self._opened.step is None:
            return inputs[0].new_zeros((packing.batch, packing.length, *self._out_shape(layer)))
        packed = [packing.take(x) for x in inputs]
        return packing.put(self.kvc_cache.layer(layer, *self._scaled(packed)))

    def _scaled(self, packed: list[Tensor]) -> list[Tensor]:
        """The queries among a layer's inputs times the model's factor for their positions, where it has one."""
        scale = self._query_scale
        if scale is None:
            return packed
        return [x * scale.to(x.dtype) for x in packed[: self._queries]] + packed[self._queries :]

    def _out_shape(self, layer: int) -> tuple[int, int]:
        program = self.kvc_cache.program
        shape = program.signatures[program.bindings[layer].signature]["shape"]
        return shape["heads"], shape["v_head_dim"]

    def _named(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a forward of the base model by name."""
        return dict(zip(self._arguments, args, strict=False)) | dict(options)

    def _before_forward(self, _: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        named = self._named(args, options)
        cache = _cache_of(named, self.kvc_cache)
        _check_options(self.model, named)
        self._opened = cache.open(_forward_call(named))
        self._query_scale = self._scale_of_queries(self._opened)

    def _scale_of_queries(self, opened: OpenStep) -> Tensor | None:
        """The factor ``[n, 1, 1]`` of the step's queries, from kvc's own positions.

        They come from the step buffer: position_ids are made on the host, and a captured graph would freeze them.
        """
        if opened.step is None or not self.family.query_scale:
            return None
        module = self.family.attention_modules(self.base)[0]
        padded = opened.packing.tokens == opened.step.padded_tokens
        return compat.query_scale(module, self.kvc_cache.positions(padded))

    def _after_forward(self, _: nn.Module, args: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
        opened, self._opened, self._query_scale = self._opened, None, None
        if opened is None:  # refused before it began
            return
        named = self._named(args, options)
        cache = _cache_of(named, self.kvc_cache)
        if output is None:  # an exception is on its way
            cache.abort(opened)
        else:
            cache.close(opened, _forward_call(named))


def _cache_of(options: Mapping[str, Any], kvc_cache: Any) -> StepCache:
    given = next((options[name] for name in compat.CACHE_ARGUMENTS if options.get(name) is not None), None)
    if not isinstance(given, StepCache):
        found = "no cache" if given is None else f"a {type(given).__name__}"
        raise fail(
            "KVC610",
            f"the model is attached to kvc and was called with {found}",
            help="pass cache=attached.new_cache(), or detach the model",
        )
    if given.kvc_cache is not kvc_cache:
        help = "make one with this attachment's new_cache()"
        raise fail("KVC610", "this cache belongs to another attachment", help=help)
    return given


def _check_options(model: PreTrainedModel, options: Mapping[str, Any]) -> None:
    wanted = options.get("output_attentions")
    if wanted or (wanted is None and getattr(model.config, "output_attentions", False)):
        raise _unsupported("KVC613", "attention weights are never materialised", "output_attentions=False")
    if model.training:
        raise _unsupported("KVC614", "a kvc cache is for inference and the model is in training mode", "model.eval()")
    mask = options.get("attention_mask")
    if mask is not None and getattr(mask, "ndim", None) != 2:
        raise _unsupported("KVC615", "the attention mask is not 2-D [batch, tokens so far]", "a padding mask or none")


def _unsupported(code: str, why: str, instead: str) -> KvcError:
    return fail(code, why, help=f"use {instead}, or detach the model")


def _forward_call(named: Mapping[str, Any]) -> ForwardCall:
    given = [named[name] for name in ("input_ids", "inputs_embeds") if named.get(name) is not None]
    if not given:
        raise fail("KVC610", "the model was called without tokens", help="pass input_ids or inputs_embeds")
    batch, length = given[0].shape[:2]
    return ForwardCall(batch, length, named.get("attention_mask"), named.get("position_ids"))
