"""Loading a model and its tokenizer from a folder, with findings where that cannot work."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer

from kvc.diagnostics import KvcError, fail
from kvc.integrations.transformers.matching import family_of

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model in eval mode and its tokenizer."""

    model: Any
    tokenizer: Any


def load_model(folder: Path, dtype: str, device: str = "cpu") -> LoadedModel:
    """Load a model folder in ``dtype`` (`fp32`, `bf16`, `fp16`), without going to any network.

    Raises KvcError: KVC602 where the folder holds no loadable model, KVC603 for a family kvc does not serve, the latter
    before any weight is read.
    """
    with _quiet(), _findings(folder):
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        family_of(config)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model: Any = _model_class(config).from_pretrained(folder, dtype=DTYPES[dtype], local_files_only=True)
    return LoadedModel(model.to(device).eval(), tokenizer)


def _model_class(config: Any) -> Any:
    """The auto class; for a config that it does not know (mistral4 in transformers 5.24) the one the config names."""
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM
    named = (name for name in config.architectures or () if name.endswith("ForCausalLM"))
    return getattr(transformers, next(named, ""), AutoModelForCausalLM)


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write a GGUF file as a model folder with fp32 weights.

    Reading a GGUF file takes transformers most of a minute (weights and vocabulary are rebuilt in Python); the folder
    loads in two seconds, to equal bits.
    """
    with _quiet(), redirect_stderr(io.StringIO()):  # the GGUF reader shows a bar that knows no switch
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        _plain(model).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _plain(model: Any) -> Any:
    """The same weights in a model that does not say it came from a quantized file, which could not be saved."""
    with torch.device("meta"):  # allocates and initialises nothing
        plain = type(model)(_without_quantization(model.config))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    return plain


def _without_quantization(config: Any) -> Any:
    values = config.to_dict()
    values.pop("quantization_config", None)
    return type(config).from_dict(values)


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers' own progress bars off: the command line shows its own."""
    shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()


@contextmanager
def _findings(folder: Path) -> Iterator[None]:
    """Turn transformers' complaints about a folder into KVC602."""
    try:
        yield
    except KvcError:
        raise
    except Exception as error:  # transformers raises OSError, ValueError, KeyError, SafetensorError and more here
        reason = str(error).strip().splitlines() or [type(error).__name__]
        message = f"{folder} holds no model that transformers can load: {reason[0]}"
        raise fail("KVC602", message, help="the folder needs config.json, a tokenizer and weights") from error
