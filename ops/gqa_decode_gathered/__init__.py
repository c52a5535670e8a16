"""kvc::gqa_decode_gathered: generation attention over rows that were gathered before."""

from kvc.ops.gqa_decode_gathered import schema
from kvc.ops.gqa_decode_gathered.example import example
from kvc.ops.gqa_decode_gathered.reference import gqa_decode_gathered
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, gqa_decode_gathered, example, schema.check_values)
