"""Byte sizes and layer ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvc.specs.sizes import UNITS, BadValue, parse_layers, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1B", 1),
        ("16GB", 16 * 10**9),
        ("139GiB", 139 * 2**30),
        ("1.5 TiB", 3 * 2**39),
        ("0.001kB", 1),
        (" 2MiB ", 2**21),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("139G", "write 139GB or 139GiB"),
        ("139gib", "write 139GiB"),
        ("139GIB", "write 139GiB"),
        ("1.0001B", "fewer decimals"),
        ("-1GB", "139GiB or 16GB"),
        ("GiB", "139GiB or 16GB"),
        ("1e9", "number and a unit"),
        ("12 parsecs", "write 12GiB or 12GB"),
        ("", "139GiB"),
        ("9" * 10_000, "139GiB"),
    ],
)
def test_bad_sizes(text: str, help: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_size(text)
    assert help in caught.value.help and len(str(caught.value)) < 200


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_sizes_are_exact(number: int, unit: str) -> None:
    assert parse_size(f"{number}{unit}") == number * UNITS[unit]


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_size, parse_layers):
        try:
            parse(text)
        except BadValue as error:
            assert error.help


def test_layer_ranges() -> None:
    assert parse_layers("0-2,60") == (range(0, 3), range(60, 61))
    assert parse_layers(" 3 , 5-5") == (range(3, 4), range(5, 6))
    assert parse_layers("0-999999999") == (range(10**9),)


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("", "0-2,60"),
        ("1-", "0-2,60"),
        ("a", "0-2,60"),
        ("2-1", 'write "1-2"'),
        ("3,1", "sort the layers"),
        ("0-3,3", "each once"),
    ],
)
def test_bad_layer_ranges(text: str, help: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_layers(text)
    assert help in caught.value.help
