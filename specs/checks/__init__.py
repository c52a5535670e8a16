"""What a well-formed spec may not say: one row a rule, with its code; every hit names a supported choice."""

from kvc.specs.checks import cache, layers, model, scales, storage, target, twins
from kvc.specs.checks.rule import Hit, Rule

__all__ = ["RULES", "Hit", "Rule"]

RULES: tuple[Rule, ...] = (
    *layers.RULES,
    *model.RULES,
    *storage.RULES,
    *cache.RULES,
    *twins.RULES,
    *scales.RULES,
    *target.RULES,
)
