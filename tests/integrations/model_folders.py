"""A tiny model with a tokenizer of its own, as a folder on disk."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHAT = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"


def byte_tokenizer(chat: str | None = None) -> PreTrainedTokenizerFast:
    """One token a byte, so that a character may take several steps."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=chat)


def tiny_config(**changes: Any) -> Any:
    values = {
        "vocab_size": 256,
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return LlamaConfig(**values | changes)


def write_model(folder: Path, chat: str | None = None, **changes: Any) -> Path:
    """Save a random byte-level Llama; ``changes`` to its config."""
    torch.manual_seed(5)
    LlamaForCausalLM(tiny_config(**changes)).eval().save_pretrained(folder)
    byte_tokenizer(chat).save_pretrained(folder)
    return folder
