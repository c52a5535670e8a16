"""The stale rule against enumeration of the rows that a coverage reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvc.plan.stale import held_pages, page_limit, stale_pages
from kvc.specs.resolved import Coverage


def stale_by_enumeration(coverage, committed, size):
    """Full pages of which neither the token in flight at ``committed`` nor a later one reads a row."""
    wanted = {row // size for row in range(committed) if row < coverage.keep_first or row > committed - coverage.window}
    return [page for page in range(committed // size) if page not in wanted]


@given(
    st.sampled_from(["window", "first_last"]),
    st.integers(1, 40),
    st.integers(0, 20),
    st.integers(0, 150),
    st.integers(1, 9),
)
def test_window(kind, window, keep_first, committed, size):
    coverage = Coverage(kind, window, keep_first)
    assert list(stale_pages(coverage, committed, size)) == stale_by_enumeration(coverage, committed, size)


@pytest.mark.parametrize("committed", [0, 1, 10**9])
def test_full_keeps_everything(committed):
    assert len(stale_pages(Coverage(), committed, 32)) == 0
    assert page_limit(Coverage(), 32) is None
    assert held_pages(Coverage(), committed, 32) == (committed + 31) // 32


@given(st.integers(1, 40), st.integers(0, 20), st.integers(1, 9), st.integers(0, 5))
def test_the_page_limit_is_reached_and_never_passed(window, keep_first, size, draft):
    coverage = Coverage("window", window, keep_first)
    held = [
        (length + draft) // size + 1 - len(stale_pages(coverage, length, size))
        for length in range(keep_first + window + 10 * size + draft)
    ]
    assert max(held) == page_limit(coverage, size, draft)


def test_the_window_of_gpt_oss_holds_three_pages():
    assert page_limit(Coverage("window", 128), 64) == 3
    assert list(stale_pages(Coverage("window", 128), 190, 64)) == []
    assert list(stale_pages(Coverage("window", 128), 191, 64)) == [0]


def test_a_coverage_without_a_rule_is_an_error():
    with pytest.raises(KeyError, match="spiral"):
        stale_pages(Coverage("spiral"), 1, 1)
    with pytest.raises(ValueError, match="needs a window"):
        stale_pages(Coverage("window"), 1, 1)
