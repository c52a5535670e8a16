"""Every private or version-dependent hook of torch and transformers that kvc relies on, in one place.

Each function names what it touches and which versions were checked; `tests/test_compat.py` has one test for each.
"""

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Seeing every op call, and walking nested arguments: no public names (torch 2.11 to 2.13).
__all__ = [
    "TorchDispatchMode",
    "attention_implementation",
    "auto_functionalized",
    "cache_argument",
    "current_stream",
    "end_failed_capture",
    "inductor_config",
    "inductor_pass",
    "is_op_overload",
    "op_schema",
    "overload_name",
    "query_scale",
    "replace_forward",
    "same_pointers",
    "storage_id",
    "tree_leaves",
]

CACHE_ARGUMENTS = ("cache", "past_key_values")  # transformers renamed `past_key_values` to `cache` in 5.x


def cache_argument(model: Any) -> str:
    """Name of the keyword under which ``model.forward`` takes its cache.

    transformers 5.24 says ``cache`` and still accepts ``past_key_values`` with a warning; before that only the latter
    exists. Raises TypeError for a model that takes neither.
    """
    names = inspect.signature(type(model).forward).parameters
    for name in CACHE_ARGUMENTS:
        if name in names:
            return name
    raise TypeError(f"{type(model).__name__}.forward takes no cache ({' or '.join(CACHE_ARGUMENTS)})")


def attention_implementation(model: Any) -> str:
    """Name of the attention function the model dispatches to: ``config._attn_implementation``, which has a public
    setter (``model.set_attn_implementation``) and no public getter (transformers 5.24)."""
    return str(model.config._attn_implementation)


def replace_forward(module: torch.nn.Module, forward: Callable[..., Any]) -> Callable[[], None]:
    """Let calls of ``module`` run ``forward(module, ...)``; returns what undoes it.

    `torch.nn.Module` looks ``forward`` up on the instance, where an attribute hides the class's (torch 2.11 to 2.13).
    """
    hidden = vars(module).get("forward")
    module.forward = partial(forward, module)

    def restore() -> None:
        if hidden is None:
            del module.forward
        else:
            module.forward = hidden

    return restore


def query_scale(module: Any, positions: torch.Tensor) -> torch.Tensor | None:
    """Factors ``[T, 1, 1]`` of the queries at ``positions`` ``[T]``, fp32, or None where the config has none.

    They are those of Mistral4's attention: ``get_llama_4_attn_scale`` in the file of the attention module, with two
    numbers of ``config.rope_parameters`` (transformers 5.24).
    """
    rope = module.config.rope_parameters
    beta = rope.get("llama_4_scaling_beta")
    if beta is None:
        return None
    function = vars(sys.modules[type(module).__module__])["get_llama_4_attn_scale"]
    scale: torch.Tensor = function(positions[None], beta, rope["original_max_position_embeddings"])
    return scale.reshape(-1, 1, 1)


def is_op_overload(value: Any) -> bool:
    """Whether ``value`` is an overload of a registered op and no other attribute of `torch.ops`: ``torch._ops``."""
    return isinstance(value, torch._ops.OpOverload)


def op_schema(op: Any) -> Any:
    """The parsed definition of an op overload: ``_schema`` (torch 2.11 to 2.13)."""
    return op._schema


def overload_name(op: Any) -> str:
    """`int` of `aten.select.int`, `default` where there is no other: ``_overloadname`` (torch 2.11 to 2.13)."""
    return str(op._overloadname)


def storage_id(tensor: torch.Tensor) -> int:
    """Equal for tensors that share memory, for as long as one of them lives: the storage's ``_cdata``."""
    return tensor.untyped_storage()._cdata


def same_pointers(tensors: list[torch.Tensor], pointers: list[int]) -> bool:
    """Whether each tensor still lies where it did: ``_tensors_data_ptrs_at_indices_equal`` reads them all in one call,
    in builds of torch with CUDA (2.11 to 2.13); the others have no such function."""
    if _COMPARE_POINTERS is None:
        return list(map(torch.Tensor.data_ptr, tensors)) == pointers
    return bool(_COMPARE_POINTERS(tensors, pointers, _indices(len(tensors))))


@lru_cache(maxsize=64)
def _indices(count: int) -> list[int]:
    return list(range(count))


_COMPARE_POINTERS = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)


def current_stream(device: torch.device) -> "torch.cuda.Stream":
    """`torch.cuda.current_stream` without making a `Stream` each time, by ``_cuda_getCurrentStream`` (torch 2.11 to
    2.13); ``device`` has an index."""
    return _stream(*torch._C._cuda_getCurrentStream(device.index))


@lru_cache(maxsize=256)
def _stream(stream_id: int, device_index: int, device_type: int) -> "torch.cuda.Stream":
    return torch.cuda.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def end_failed_capture(graph: "torch.cuda.CUDAGraph", pool: Any) -> None:
    """Take back what a capture that failed leaves behind (torch 2.11): the stream captures, the allocator serves the
    graph's pool (``_cuda_endAllocateToPool``, ``_cuda_releasePool``), and the generator believes it is captured."""
    try:
        graph.capture_end()
    except RuntimeError:  # the stream is free now, the rest is not
        device = torch.cuda.current_device()
        for undo in (torch._C._cuda_endAllocateToPool, torch._C._cuda_releasePool):
            with suppress(RuntimeError):  # it was undone already
                undo(device, pool)
        generator = torch.cuda.default_generators[device]
        generator.graphsafe_set_state(generator.clone_state())
    torch.cuda.synchronize()


def auto_functionalized() -> Any:
    """The op that stands for a writing call in inductor's functional graphs: ``auto_functionalized_v2`` of
    ``torch._higher_order_ops`` (torch 2.11 to 2.13)."""
    return torch.ops.higher_order.auto_functionalized_v2


def inductor_pass(run: Callable[[torch.fx.Graph], None], uuid: Callable[[], Any]) -> Any:
    """``run`` as inductor takes passes: a ``CustomGraphPass`` of ``torch._inductor.custom_graph_pass``, whose ``uuid``
    is part of the keys of inductor's caches. Importing inductor takes seconds, so it is done here."""
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Pass(CustomGraphPass):
        """What inductor calls."""

        def __call__(self, graph: torch.fx.Graph) -> None:
            run(graph)

        def uuid(self) -> Any:
            """Equal for passes that rewrite equally."""
            return uuid()

    return Pass()


def inductor_config() -> Any:
    """The module of inductor's settings; its ``post_grad_custom_pre_pass`` runs on every graph after autograd and
    functionalization (torch 2.11 to 2.13)."""
    import torch._inductor.config as config

    return config
