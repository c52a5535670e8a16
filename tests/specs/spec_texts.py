"""A valid spec to break, and what breaking it reports."""

import pytest

from kvc.diagnostics import Diagnostic, KvcError
from kvc.specs import load_spec_text

VALID = """\
kvc: 1
name: valid
model:
  dtype: fp32
  max_position: 256
  layers:
    - kind: gqa
      repeat: 4
      heads: 6
      kv_heads: 3
      head_dim: 16
      rope: {kind: default, theta: 10000}
cache:
  encoding: fp8
  tokens_per_page: 16
  scales: {source: unit}
target:
  device: cpu
  max_sequences: 4
  max_seq_len: 256
  max_tokens: 256
  buckets: [1, 2, 4]
"""


def broken(old: str, new: str) -> str:
    """The valid spec with one piece replaced."""
    assert VALID.count(old) == 1, old
    return VALID.replace(old, new)


def findings(text: str) -> list[Diagnostic]:
    """What is reported about a text."""
    with pytest.raises(KvcError) as caught:
        load_spec_text(text, "bad.yaml")
    return list(caught.value.diagnostics)


def place(found: Diagnostic) -> tuple[int, int]:
    """Line and column; the file must be cited too."""
    assert found.source and found.source.path == "bad.yaml"
    return found.source.line, found.source.column
