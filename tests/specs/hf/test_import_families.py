"""The tables of families keep their own rules."""

import pytest

from kvc.specs.hf.families import FAMILIES, WRAPPERS
from kvc.specs.hf.families.ignored import COMMON_IGNORES
from kvc.specs.hf.fields import FIELD_TYPES


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_fields_are_read_or_ignored_and_have_a_type(family) -> None:
    assert set(family.read_fields) & set(family.ignores) == set()
    assert set(family.read_fields) <= set(FIELD_TYPES)
    assert set(family.defaults) <= set(family.read_fields)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_defaults_are_values_that_the_field_may_have(family) -> None:
    assert all(FIELD_TYPES[name].accepts(value) for name, value in family.defaults.items())


def test_only_the_width_of_the_model_is_ignored_by_some_and_read_by_others() -> None:
    read = {name for family in FAMILIES.values() for name in family.read_fields}
    assert read & set(COMMON_IGNORES) == {"hidden_size"}


def test_wrappers_lead_to_families() -> None:
    assert set(WRAPPERS.values()) <= set(FAMILIES)
