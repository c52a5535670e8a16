"""kvc::merge_states: combines partial attention outputs by log-sum-exp."""

from kvc.ops.merge_states import schema
from kvc.ops.merge_states.example import example
from kvc.ops.merge_states.reference import merge_states
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, merge_states, example)
