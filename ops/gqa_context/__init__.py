"""kvc::gqa_context: causal attention over own and cached tokens."""

from kvc.ops.gqa_context import schema
from kvc.ops.gqa_context.example import example
from kvc.ops.gqa_context.reference import gqa_context
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, gqa_context, example, schema.check_values)
