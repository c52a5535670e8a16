"""Every private or version-dependent hook, one test each."""

import inspect

import pytest

from kvc import compat

transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")


@pytest.fixture(scope="module")
def model() -> object:
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
