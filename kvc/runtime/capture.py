"""What the program's capture plan says about a step: which tensors of the cache are static, which are copied.

The plan of the manifest is what is enforced: a tensor that it does not name is not registered, so a captured callable
that reads it is refused (KVC520).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from kvc.compat import storage_id
from kvc.diagnostics import KvcError, fail
from kvc.graphs.program import CapturePlan, CaptureRegion, signature_of
from kvc.runtime.batch import Bucket, Step
from kvc.runtime.cache import Cache


@dataclass(frozen=True)
class CaptureInputs:
    """The cache's part of what `GraphRunner.capture` registers; the model's weights and inputs are added to it."""

    static: dict[str, torch.Tensor]
    copied: dict[str, torch.Tensor]


def capture_inputs(cache: Cache, bucket: Bucket) -> CaptureInputs:
    """The tensors of the cache to register for ``bucket`` (`Step.bucket`: padded sequences, tokens of each).

    KVC526: the program has no capture plan, the bucket is not in it, or it has a rule that a cache cannot follow.
    """
    plan = _plan_of(cache, bucket)
    found = [one for region in plan.regions for one in _inputs_of(cache, region)]
    fixed = {storage_id(tensor) for rule, tensor in found if rule == "static"}
    static = {name: tensor for name, tensor in cache.static_tensors.items() if storage_id(tensor) in fixed}
    return CaptureInputs(static, {"step": cache.step_buffer} if any(rule == "copied" for rule, _ in found) else {})


def replay_bucket(cache: Cache, step: Step) -> Bucket:
    """The only key under which an open step may be replayed: that of the bucket its data was packed for.

    KVC526 for a step that no captured graph covers: one with context requests, or of a size that is not in the plan.
    """
    if step.bucket is None or len(step.parts) > 1:
        message = "the step has context requests, which are not captured: a replay would leave their rows out"
        raise fail("KVC526", message, help="run the step with prologue and layer, or split it by phase")
    _plan_of(cache, step.bucket)
    return step.bucket


def _plan_of(cache: Cache, bucket: Bucket) -> CapturePlan:
    plan = cache.program.capture
    if plan is None:
        help = "`kvc inspect DIR` says which calls stood in the way of capture_cuda_graphs; run the steps uncaptured"
        raise fail("KVC526", f"program {cache.program.name} has no capture plan", help=help)
    if bucket[0] not in plan.buckets:
        sizes = ", ".join(map(str, plan.buckets))
        raise fail("KVC526", f"a bucket of {bucket[0]} sequences is not in the capture plan", help=f"planned: {sizes}")
    return plan


def _inputs_of(cache: Cache, region: CaptureRegion) -> Iterator[tuple[str, torch.Tensor]]:
    """The rule and the tensor of every input of a region that is not derived, for every layer that runs it."""
    copied = {name: cache.step_buffer for name in region.inputs if name.startswith("step.")}
    for bound in _bound_tensors(cache, region):
        held: dict[str, Mapping[str, torch.Tensor]] = {"static": {**bound, **cache.feedback}, "copied": copied}
        for name, rule in region.inputs.items():
            if rule == "derived" or name.startswith("staging."):  # the engine registers its own staging
                continue
            if name not in held.get(rule, {}):
                raise _no_such_input(region, name, rule)
            yield rule, held[rule][name]


def _bound_tensors(cache: Cache, region: CaptureRegion) -> list[Mapping[str, torch.Tensor]]:
    signature = signature_of(region.callable)
    layers = [binding.layer for binding in cache.program.bindings if binding.signature == signature]
    return [cache.bound_tensors(layer) for layer in layers] or [{}]


def _no_such_input(region: CaptureRegion, name: str, rule: str) -> KvcError:
    return fail("KVC526", f"{region.callable}: the capture plan has {name} as {rule}, which the cache does not hold")
