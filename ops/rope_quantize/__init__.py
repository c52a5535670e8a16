"""kvc::rope_quantize: rope, then quantize, in one op."""

from kvc.ops.registry import OpDef
from kvc.ops.rope_quantize import schema
from kvc.ops.rope_quantize.example import example
from kvc.ops.rope_quantize.reference import rope_quantize

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, rope_quantize, example, schema.check_values)
