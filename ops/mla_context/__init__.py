"""kvc::mla_context: causal attention over own and cached tokens, cached rows expanded by chunks."""

from kvc.ops.mla_context import schema
from kvc.ops.mla_context.example import example
from kvc.ops.mla_context.reference import mla_context
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, mla_context, example, schema.check_values, schema.scratch)
