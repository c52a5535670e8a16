"""The YAML itself: its comments, its repeats, its numbers."""

from collections.abc import Sequence

import pytest
import yaml
from config_files import FILES, FOLDER
from hypothesis import given
from hypothesis import strategies as st

from kvc.specs.hf.config import Derived
from kvc.specs.hf.document import WIDTH, scalar
from kvc.specs.hf.importing import spec_from_config
from kvc.specs.hf.repeats import Group, Run, folded
from kvc.specs.scalars import plain_value, trap_of

GPT_OSS = """\
model:
  # not in the config: bf16 activations
  dtype: bf16
  # from max_position_embeddings
  max_position: 131072
  # from num_hidden_layers, layer_types
  layers:
    - repeat: 12
      layers:
        # from sliding_window, max_position_embeddings, num_attention_heads, head_dim, num_key_value_heads,
        # rope_scaling, rope_theta
        - kind: gqa
"""


def test_each_part_says_what_it_follows_from() -> None:
    assert GPT_OSS in spec_from_config(FOLDER / "hub/gpt-oss-20b.json")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_texts_are_short_and_narrow(path: object) -> None:
    lines = spec_from_config(path).splitlines()  # type: ignore[arg-type]
    assert lines[0] == "# yaml-language-server: $schema=kvc.schema.json"
    assert len(lines) < 120 and max(map(len, lines)) <= WIDTH


@given(st.floats(min_value=1e-9, max_value=1e18, allow_nan=False))
def test_numbers_mean_the_same_to_every_reader(number: float) -> None:
    text = scalar(number)
    assert trap_of(text) is None
    assert plain_value(text) == number == float(yaml.safe_load(text))


def unfolded(entries: Sequence[Run | Group]) -> list[str]:
    runs = [run for entry in entries for run in ((entry.runs * entry.count) if isinstance(entry, Group) else (entry,))]
    return [run.layer.value for run in runs for _ in range(run.count)]


def layers_of(text: str) -> list[Derived]:
    return [Derived(letter) for letter in text]


@given(st.text("abc", min_size=1, max_size=60))
def test_folding_keeps_every_layer_in_its_place(text: str) -> None:
    assert unfolded(folded(layers_of(text))) == list(text)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("aaaa", 1),
        ("ab" * 12, 1),
        ("aaaaab" * 4 + "aa", 2),
        ("b" + "aaaab" + "aaaaab" * 7, 4),
        ("aabab", 4),
        ("abc" * 5, 1),
        ("abcabd", 6),
    ],
)
def test_patterns_are_found(text: str, entries: int) -> None:
    assert len(folded(layers_of(text))) <= entries
