"""Every private or version-dependent hook, one test each."""

import inspect
from types import SimpleNamespace

import pytest
import torch

import kvc.ops  # noqa: F401  registers what test_auto_functionalized calls
from kvc import compat


@pytest.fixture(scope="module")
def model() -> object:
    transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=9, **shape))


def test_cache_argument(model: object) -> None:
    """Both the whole model and its base take their cache under the same name."""
    name = compat.cache_argument(model)
    assert name == compat.cache_argument(model.base_model)
    assert name in inspect.signature(type(model).forward).parameters
    with pytest.raises(TypeError, match="takes no cache"):
        compat.cache_argument(model.lm_head)


def test_attention_implementation(model: object) -> None:
    """The getter sees what the public setter set."""
    assert compat.attention_implementation(model) != "eager"
    model.set_attn_implementation("eager")
    assert compat.attention_implementation(model) == "eager"


def test_replace_forward() -> None:
    """Calls go to the replacement until it is undone; a forward that hid the class's comes back."""
    module = torch.nn.Linear(2, 2)
    x = torch.randn(3, 2)
    plain = module(x)
    undo = compat.replace_forward(module, lambda module, x: x * module.out_features)
    undo_second = compat.replace_forward(module, lambda module, x: x)
    assert torch.equal(module(x), x)
    undo_second()
    assert torch.equal(module(x), x * 2)
    undo()
    assert torch.equal(module(x), plain)
    assert "forward" not in vars(module)


def test_query_scale() -> None:
    """What Mistral4 multiplies its queries by."""
    modeling = pytest.importorskip("transformers.models.mistral4.modeling_mistral4", reason="no Mistral4 here")
    rope = {"llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 4}
    module = modeling.Mistral4Attention.__new__(modeling.Mistral4Attention)
    torch.nn.Module.__init__(module)
    module.config = SimpleNamespace(rope_parameters=rope)
    scale = compat.query_scale(module, torch.tensor([0, 3, 4, 9], dtype=torch.int32))
    expected = 1 + 0.5 * torch.log(torch.tensor([1.0, 1.0, 2.0, 3.0]))
    torch.testing.assert_close(scale, expected[:, None, None])
    rope["llama_4_scaling_beta"] = None
    assert compat.query_scale(module, torch.tensor([9])) is None


def test_is_op_overload() -> None:
    """Neither the packet of an op's overloads nor what else `torch.ops` has."""
    assert compat.is_op_overload(torch.ops.aten.neg.default)
    assert not any(map(compat.is_op_overload, (torch.ops.aten.neg, torch.ops.aten, torch.ops.load_library)))


def test_op_schema() -> None:
    """Names, mutability and results of an op's definition."""
    schema = compat.op_schema(torch.ops.aten.add_.Tensor)
    assert (schema.name, schema.is_mutable) == ("aten::add_", True)
    assert [argument.name for argument in schema.arguments] == ["self", "other", "alpha"]
    assert [str(result.type) for result in schema.returns] == ["Tensor"]


def test_overload_name() -> None:
    """The overload alone, without the op's name."""
    assert compat.overload_name(torch.ops.aten.select.int) == "int"
    assert compat.overload_name(torch.ops.aten.neg.default) == "default"


def test_storage_id() -> None:
    """Views share it, copies do not."""
    tensor = torch.zeros(4)
    assert compat.storage_id(tensor[1:]) == compat.storage_id(tensor)
    assert compat.storage_id(tensor.clone()) != compat.storage_id(tensor)


def test_dispatch_mode_sees_every_call() -> None:
    """Ops of any namespace, with their arguments."""
    seen = []

    class Watch(compat.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        torch.zeros(2).neg()
    assert seen == [torch.ops.aten.zeros.default, torch.ops.aten.neg.default]


def test_tree_leaves() -> None:
    """Every nesting that an op's arguments and results come in."""
    assert compat.tree_leaves((1, [2, None], {"a": (3,)})) == [1, 2, None, 3]


def test_auto_functionalized() -> None:
    """What inductor's graphs hold in the place of a call that writes, and how it names its base."""
    call = compat.auto_functionalized()
    x = torch.zeros(2, 16, dtype=torch.uint8)
    given = {"planes": [torch.ones(1, 1, 16, dtype=torch.uint8)], "rows": torch.tensor([1]).int(), "tokens_per_page": 1}
    result, version = call(torch.ops.kvc.store_rows.default, **given, _pool_base_index=0, _all_bases=[x])
    assert result is None and version.tolist() == [[0] * 16, [1] * 16] and not x.any()


def test_inductor_pass() -> None:
    """What inductor calls with a graph, and asks for a part of its cache's key."""
    seen: list[torch.fx.Graph] = []
    made = compat.inductor_pass(seen.append, lambda: "key")
    graph = torch.fx.Graph()
    made(graph)
    assert seen == [graph] and made.uuid() == "key"


def test_inductor_config() -> None:
    """The setting exists, is empty, and can be set for a while."""
    config = compat.inductor_config()
    assert config.post_grad_custom_pre_pass is None
    with config.patch({"post_grad_custom_pre_pass": print}):
        assert config.post_grad_custom_pre_pass is print
    assert config.post_grad_custom_pre_pass is None


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_same_pointers(device: str) -> None:
    """A tensor that has moved is noticed, on builds with the one call and without it."""
    tensors = [torch.zeros(3, device=device) for _ in range(3)]
    pointers = [tensor.data_ptr() for tensor in tensors]
    assert compat.same_pointers(tensors, pointers)
    tensors[1].data = torch.ones(3, device=device)
    assert not compat.same_pointers(tensors, pointers)


@pytest.mark.gpu
def test_current_stream() -> None:
    """The stream of a block, and the default one again behind it."""
    device = torch.device("cuda", torch.cuda.current_device())
    assert compat.current_stream(device) == torch.cuda.default_stream()
    with torch.cuda.stream(torch.cuda.Stream()):
        assert compat.current_stream(device) == torch.cuda.current_stream()
    assert compat.current_stream(device) is compat.current_stream(device)


@pytest.mark.gpu
def test_end_failed_capture() -> None:
    """Allocator, stream and generator serve the next capture, and work outside of one."""
    x = torch.ones(4, device="cuda")
    for _ in range(2):
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        with torch.cuda.stream(torch.cuda.Stream()):
            graph.capture_begin(pool=pool)
            with pytest.raises(RuntimeError):
                x.sum().item()
            compat.end_failed_capture(graph, pool)
        with pytest.raises(RuntimeError, match="not currently recording"):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        torch.randn(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
            y = x * 2
        graph.replay()
        assert (y == 2).all()
