"""kvc::gqa_decode: paged generation attention."""

from kvc.ops.gqa_decode import schema
from kvc.ops.gqa_decode.example import example
from kvc.ops.gqa_decode.reference import gqa_decode
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, gqa_decode, example, schema.check_values)
