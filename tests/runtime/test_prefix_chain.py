"""Keys of a chain: equal for equal tokens and salt, whatever the pieces they came in."""

import numpy as np
import pytest

from kvc.diagnostics import KvcError
from kvc.runtime.prefix_chain import PrefixChain, token_ids


def keys(tokens, *cuts, size=4, salt=b""):
    chain = PrefixChain(size, salt)
    for start, stop in zip((0, *cuts), (*cuts, len(tokens)), strict=True):
        chain.extend(token_ids(tokens[start:stop]))
    assert chain.tokens == len(tokens)
    return chain.keys


def test_a_key_stands_for_its_block_and_all_before_it():
    tokens = list(range(12))
    assert len(keys(tokens)) == len(keys([*tokens, 0, 0, 0])) == 3
    for position in range(12):
        other = tokens.copy()
        other[position] += 1
        same = [left == right for left, right in zip(keys(tokens), keys(other), strict=True)]
        assert same == [position >= 4 * (block + 1) for block in range(3)]
    assert not set(keys(tokens)) & set(keys(tokens, salt=b"adapter"))
    assert not set(keys(tokens)) & set(keys(tokens, size=6))


@pytest.mark.parametrize("cuts", [(1,), (4,), (3, 5), (2, 4, 11), (12,)])
def test_keys_do_not_depend_on_pieces(cuts):
    assert keys(list(range(14)), *cuts) == keys(list(range(14)))


def test_the_key_with_the_next_token():
    left, right = PrefixChain(4), PrefixChain(4)
    left.extend(token_ids([1, 2, 3, 4, 5]))
    right.extend(token_ids([1, 2, 3, 4, 6]))
    assert left.keys == right.keys
    assert left.key_with_next(0) != right.key_with_next(0)


def test_ids_of_any_integer_type():
    for kind in (np.int32, np.uint8, np.uint64, np.int64):
        assert token_ids(np.arange(3, dtype=kind)).tolist() == [0, 1, 2]
    assert token_ids([]).tolist() == []
    assert token_ids((-1, 2**63 - 1)).tolist() == [-1, 2**63 - 1]


@pytest.mark.parametrize("tokens", [[0.5], [1.0], [True], ["a"], [[1]], 3, [2**63], [2**70], None])
def test_what_is_no_flat_sequence_of_ids_is_refused(tokens):
    with pytest.raises(KvcError, match="KVC504"):
        token_ids(tokens)
