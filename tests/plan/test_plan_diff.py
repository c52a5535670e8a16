"""Comparing plans, as data and as a table."""

from hypothesis import given
from plan_specs import GIB, make_run, make_spec, specs

from kvc.plan import make_plan
from kvc.plan.diff import diff_plans
from kvc.report.plan_diff import plan_diff_table


def changes_of(before, after):
    return {change.path: (change.before, change.after) for change in diff_plans(before, after).changes}


def test_an_encoding_changes_its_bytes_and_the_capacity():
    bf16 = make_plan(make_spec(make_run(0, 32)), 80 * GIB)
    fp8 = make_plan(make_spec(make_run(0, 32, encoding="fp8")), 80 * GIB)
    changes = changes_of(bf16, fp8)
    assert changes["bytes_per_token"] == (131_072, 65_536)
    assert changes["layer_groups.gqa0.encoding"] == ("bf16", "fp8")
    assert changes["capacity.tokens"][1] == 2 * changes["capacity.tokens"][0]
    assert "layer_groups.gqa0.layers" not in changes


def test_where_a_plan_came_from_is_no_difference():
    here, there = make_spec(make_run(0, 2, line=3)), make_spec(make_run(0, 2, line=9), name="other")
    diff = diff_plans(make_plan(here), make_plan(there))
    assert diff.equal
    assert diff.to_json() == {"before": "m", "after": "other", "equal": True, "changes": []}
    assert plan_diff_table(diff) == "memory: m and other are equal"


def test_what_only_one_plan_has_is_one_change():
    one = make_plan(make_spec(make_run(0, 4)))
    two = make_plan(make_spec(make_run(0, 2), make_run(2, 2, encoding="fp8")), 80 * GIB)
    changes = changes_of(one, two)
    assert changes["layer_groups.gqa1"][0] is None
    assert changes["layer_groups.gqa1"][1]["encoding"] == "fp8"
    assert changes["capacity"][0] is None
    assert not [path for path in changes if path.startswith(("layer_groups.gqa1.", "capacity."))]
    assert changes_of(two, one) == {path: (after, before) for path, (before, after) in changes.items()}


@given(specs())
def test_a_plan_equals_itself_after_json(spec):
    plan = make_plan(spec)
    assert diff_plans(plan, type(plan).from_json(plan.to_json())).equal


def test_the_table():
    before = make_plan(make_spec(make_run(0, 4)))
    after = make_plan(make_spec(make_run(0, 3), make_run(3, 1, encoding="fp8"), name="n"))
    assert plan_diff_table(diff_plans(before, after)) == TABLE


TABLE = """\
memory                             m        n                ratio
bytes_per_token                    16,384   14,336           x0.875
layer_groups.gqa0.layers           0-3      0-2
layer_groups.gqa0.bytes_per_token  16,384   12,288           x0.75
layer_groups.gqa1                  -        present
lifecycles.0.pools                 0        0, 1
lifecycles.0.bytes_per_token       16,384   14,336           x0.875
pools.0.pages_per_slot             4        3                x0.75
pools.0.slot_bytes                 524,288  393,216          x0.75
pools.1                            -        present
pool_groups.0.slot_bytes           524,288  458,752          x0.875
pool_groups.0.slot_sizes           524,288  393,216, 65,536
overheads.table_bytes              4,096    6,144            x1.5"""
