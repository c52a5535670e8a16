"""Compiled sparse caches against plain tensors: what is chosen, and that it is read as it is retained."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_caches import new_cache, retained
from mixed_model import Retention
from mixed_player import Both, events, retained_edges
from sparse_model import SparseModel
from test_sparse_cache import LOWS, text

PLAIN = ("fp32", "fp8")


class Sparse(Both):
    """The choice of a layer is its own, or that of the layer before, and is checked by itself."""

    def wanted(self, layer, request, rows, inputs):
        selected = self.cache.selection(layer)[rows]
        if "index_q" in inputs:
            self.model.check_choice(layer, request.id, inputs, selected)
        return self.model.sparse_out(layer, request.id, inputs, request.phase, selected)


def sparse(low, high, page, first, last, unit):
    """A cache of three layers, the second of which shares an indexer, and its model."""
    retain = retained(first, last, high, unit) if first + last else ""
    cache = new_cache(text(low, retain, "fp32", page), num_slots=max(60 // page, 20))
    kept = Retention(low, high, first, last, unit, page)
    return Sparse(cache, lambda weights: SparseModel("mla", [kept] * 3, weights, "interleaved"))


@pytest.mark.parametrize("low", LOWS)
@settings(max_examples=2, deadline=None)
@given(twin=retained_edges(), schedule=st.lists(events(), min_size=4, max_size=12))
def test_steps_read_what_is_retained_and_nothing_else(low, twin, schedule):
    both = sparse(low, "fp8", *twin)
    for event in schedule:
        both.play(event)


@pytest.mark.parametrize("low", PLAIN)
@settings(max_examples=2, deadline=None)
@given(page=st.sampled_from([1, 4]), schedule=st.lists(events(), min_size=4, max_size=12))
def test_plain_caches_read_their_rows(low, page, schedule):
    both = sparse(low, low, page, 0, 0, "token")
    for event in schedule:
        both.play(event)
