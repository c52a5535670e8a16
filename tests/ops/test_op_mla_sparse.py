"""kvc::mla_sparse: absorbed attention over selected latent rows."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_calls import Cache, step

from kvc.diagnostics import KvcError
from kvc.ops import OPS, mla_inputs
from kvc.ops.example_inputs import SHAPES, Shape, positions, scale_for

sparse = torch.ops.kvc.mla_sparse.default
decode = torch.ops.kvc.mla_decode.default
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}
STEP = Shape(committed=(45, 0, 16, 29), own=(2, 2, 2, 2), padding=2, dtype=torch.float32)
ROWS_OF = ("selection", "sequence")


class Call:
    """A step over rows gathered from a cache: of a selection or of whole sequences, values or codes."""

    def __init__(self, shape, selected, rows_of, codes=False):
        self.cache, self.codes = Cache(shape), codes
        self.selected, self.rows_of = selected, rows_of
        self.queries = mla_inputs.query(shape, "latent"), mla_inputs.query(shape, "rope")
        self.positions = positions(shape)

    def rows(self):
        chosen = self.selected if self.rows_of == "selection" else None
        return self.cache.gather(chosen, self.codes, self.queries[0].dtype)

    def args(self, rows=None):
        where = self.positions, self.cache.sequence_ids, self.cache.table
        scale = scale_for("fp8", "latent") if self.codes else None
        return *self.queries, *(rows or self.rows()), self.selected, *where, scale

    def how(self):
        size = self.cache.shape.tokens_per_page
        return {"rows_of": self.rows_of, "tokens_per_page": size, "softmax_scale": 0.14}

    def run(self, rows=None):
        return sparse(*self.args(rows), **self.how())

    def decoded(self):
        """What kvc::mla_decode gives for the same cache and queries, padding left out."""
        scale = None if self.cache.shape.encoding != "fp8" else scale_for("fp8", "latent")
        q = [x[: sum(self.cache.shape.own)] for x in self.queries]
        where = self.cache.pool, self.cache.table, self.cache.lengths, scale, scale
        how = {name: self.how()[name] for name in ("tokens_per_page", "softmax_scale")}
        return decode(*q, *where, encoding=self.cache.shape.encoding, **how)


def every(shape, seed=0):
    """All positions of the longest sequence and more, in an order of its own for each token."""
    order = torch.Generator().manual_seed(seed)
    width = max(shape.lengths) + 3
    return torch.stack([torch.randperm(width, generator=order) for _ in range(shape.tokens)]).int()


def exact(args, how):
    """In fp64, entry by entry: softmax over those that count, as often as they are given."""
    q_latent, q_rope, latent, rope, selected, own, ids, table, scale = args
    read = [
        x.double() if scale is None else torch.ops.kvc.dequantize_fp8.default(x, scale, dtype=torch.float32).double()
        for x in (latent, rope)
    ]
    out = torch.zeros(q_latent.shape, dtype=torch.float64)
    lse = torch.full(q_latent.shape[:2], -torch.inf, dtype=torch.float64)
    for t, chosen in enumerate(selected.tolist()):
        keys = []
        for k, p in enumerate(chosen):
            page = p // how["tokens_per_page"]
            if ids[t] >= 0 and 0 <= p <= own[t] and page < table.shape[1] and table[ids[t], page] >= 0:
                keys.append([x[t, k, 0] if how["rows_of"] == "selection" else x[ids[t], p, 0] for x in read])
        if keys:
            c, r = (torch.stack(x) for x in zip(*keys, strict=True))
            scores = (q_latent[t].double() @ c.T + q_rope[t].double() @ r.T) * how["softmax_scale"]
            out[t], lse[t] = scores.softmax(-1) @ c, scores.logsumexp(-1)
    return out, lse


def check(args, how):
    (out, lse), (want, states) = sparse(*args, **how), exact(args, how)
    tolerance = TOLERANCE[args[0].dtype]
    torch.testing.assert_close(out.double(), want, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.double(), states, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_fp64(shape, encoding):
    check(*OPS["mla_sparse"].example(replace(SHAPES[shape], encoding=encoding)))


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_any_selection(data):
    """Chunks and single tokens, holes in the table, repeats, -1 and positions of no row: each form against fp64."""
    own = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    committed = tuple(data.draw(st.integers(0, 24)) for _ in own)
    sizes = {"tokens_per_page": data.draw(st.sampled_from([1, 4, 16])), "padding": data.draw(st.integers(0, 2))}
    shape = replace(STEP, committed=committed, own=tuple(own), **sizes)
    top_k = data.draw(st.integers(0, 6))
    place = st.one_of(st.integers(-1, 30), st.sampled_from([-(2**31), 2**31 - 1]))
    chosen = [[data.draw(place) for _ in range(top_k)] for _ in range(shape.tokens)]
    selected = torch.tensor(chosen, dtype=torch.int32).reshape(shape.tokens, top_k)
    call = Call(shape, selected, data.draw(st.sampled_from(ROWS_OF)), codes=data.draw(st.booleans()))
    holes = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    call.cache.table[torch.rand(call.cache.table.shape, generator=holes) < 0.2] = -1
    check(call.args(), call.how())


@pytest.mark.parametrize("rows_of", ROWS_OF)
@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("encoding", ["fp32", "bf16", "fp8", "fp8_ds_mla"])
def test_everything_selected_is_mla_decode(encoding, codes, rows_of):
    """Up to rounding; the step's queries see each other's rows causally. Codes are those of an fp8 cache."""
    shape = step("fp8" if codes else encoding, STEP)
    call = Call(shape, every(shape), rows_of, codes)
    for got, want in zip(call.run(), call.decoded(), strict=True):
        torch.testing.assert_close(got[: len(want)], want, rtol=1e-6, atol=1e-6)


def test_pages_not_held_as_in_mla_decode():
    call = Call(STEP, every(STEP), "selection")
    call.cache.table[0, 1], call.cache.table[3, 1] = -1, -1  # the second holds the step's own rows
    for got, want in zip(call.run(), call.decoded(), strict=True):
        torch.testing.assert_close(got[: len(want)], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("codes", [False, True])
def test_rows_of_a_selection_and_of_a_sequence_give_the_same_bits(codes):
    chosen = every(STEP)[:, :9]
    calls = [Call(STEP, chosen, rows_of, codes) for rows_of in ROWS_OF]
    assert all(torch.equal(a, b) for a, b in zip(*(call.run() for call in calls), strict=True))


def test_the_order_of_a_selection_is_rounding():
    one, other = (Call(STEP, every(STEP, seed), "selection") for seed in (0, 1))
    for a, b in zip(one.run(), other.run(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
        assert not torch.equal(a, b) or a.isinf().all()


def test_a_position_given_twice_counts_twice():
    """Its weight doubles: two rows, one of them twice."""
    shape = replace(STEP, committed=(5,), own=(1,), padding=0, heads=1)
    once, twice = (Call(shape, torch.tensor([chosen]).int(), "selection").run() for chosen in ([1, 4], [1, 4, 4]))
    alone = [Call(shape, torch.tensor([[p]]).int(), "selection").run()[1].exp() for p in (1, 4)]
    torch.testing.assert_close(once[1].exp(), alone[0] + alone[1])
    torch.testing.assert_close(twice[1].exp(), alone[0] + 2 * alone[1])
    assert not torch.allclose(once[0], twice[0])


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("rows_of", ROWS_OF)
@pytest.mark.parametrize("codes", [False, True])
def test_rows_that_do_not_count_change_no_bit(codes, rows_of, value):
    """Entries of -1, past a token's own, of padding; of a sequence all rows that no token selects."""
    chosen = every(STEP)[:, :12]
    chosen[:, ::5] = -1
    call = Call(STEP, chosen, rows_of, codes)
    rows, ids = call.rows(), call.cache.sequence_ids
    counts = (chosen >= 0) & (chosen <= call.positions[:, None]) & (ids >= 0)[:, None]
    if rows_of == "sequence":
        named, seen = counts, torch.zeros(rows[0].shape[:2], dtype=torch.bool)
        seen[ids[:, None].expand_as(named)[named].long(), chosen[named].long()] = True
        counts = seen
    bad = 0x7F if codes else value
    spoiled = [x.masked_fill(~counts[..., None, None], bad) for x in rows]
    assert not torch.equal(spoiled[0], rows[0]) and all(
        torch.equal(a, b) for a, b in zip(call.run(spoiled), call.run(rows), strict=True)
    )


@pytest.mark.parametrize("rows_of", ROWS_OF)
def test_a_token_does_not_depend_on_the_others(rows_of):
    call = Call(STEP, every(STEP)[:, :9], rows_of)
    q_latent, q_rope, latent, rope, selected, own, ids, table, _ = call.args()
    out, lse = call.run()
    for t in range(STEP.tokens):
        rows = (x[t : t + 1] if rows_of == "selection" else x for x in (latent, rope))
        each = (x[t : t + 1] for x in (selected, own, ids))
        alone = sparse(q_latent[t : t + 1], q_rope[t : t + 1], *rows, *each, table, None, **call.how())
        assert torch.equal(alone[0][0], out[t]) and torch.equal(alone[1][0], lse[t])


def test_parts_of_a_selection_are_combined_by_merge_states():
    """As context ranks share a history: each attends to the entries on its pages, some to none."""
    call = Call(STEP, every(STEP)[:, :9], "selection")
    whole, table, states = call.run(), call.cache.table, []
    rows = call.rows()
    for part in range(2):
        call.cache.table = table.masked_fill(torch.arange(table.shape[1]) % 2 != part, -1)
        states.append(call.run(rows))
    merged = torch.ops.kvc.merge_states.default(*(torch.stack(x) for x in zip(*states, strict=True)))
    assert any(lse.eq(-torch.inf).any() for _, lse in states)
    for got, want in zip(merged, whole, strict=True):
        torch.testing.assert_close(got, want, rtol=3e-6, atol=3e-6)


def test_no_row_is_zero_and_minus_infinity():
    call = Call(STEP, torch.full((STEP.tokens, 4), -1, dtype=torch.int32), "selection")
    for chosen in (call.selected, call.selected[:, :0]):
        call.selected = chosen
        out, lse = call.run()
        assert not out.any() and lse.eq(-torch.inf).all()
    args = [x[:0] if x is not None else None for x in call.args()]
    assert sparse(*args, **call.how())[0].shape == (0, 4, 48)
    out, lse = Call(STEP, every(STEP), "selection").run()
    assert lse[:-2].isfinite().all() and lse[-2:].eq(-torch.inf).all() and not out[-2:].any()


@pytest.mark.parametrize(
    ("rows_of", "index", "change", "code", "words"),
    [
        ("selection", 8, lambda _: scale_for("fp8", "latent"), "KVC551", "row_scale: is given: latent holds no codes"),
        ("selection", 0, lambda t: t.half(), "KVC551", "q_rope: dtype is float32, that of q_latent is float16"),
        ("sequence", 2, lambda t: t[:3], "KVC551", "rope: axis B is 4, expected 3"),
        ("sequence", 5, lambda t: t + 18, "KVC552", "positions[1] is 64, expected 0 <= value < 64"),
    ],
)
def test_bad_calls_of_values(rows_of, index, change, code, words):
    call = Call(STEP, every(STEP), rows_of)
    args = list(call.args())
    args[index] = change(args[index])
    with pytest.raises(KvcError) as caught:
        sparse(*args, **call.how())
    (found,) = caught.value.diagnostics
    assert found.code == code and f"kvc::mla_sparse: {words}" in found.message


def test_rows_shorter_than_the_table():
    """Rows of a sequence end before a token's position: there is no such row to attend to."""
    call = Call(STEP, every(STEP), "sequence")
    with pytest.raises(KvcError, match=r"positions\[0\] is 45, expected 0 <= value < 40"):
        call.run([x[:, :40] for x in call.rows()])
