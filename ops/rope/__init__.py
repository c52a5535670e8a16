"""kvc::rope: rotary embedding, interleaved or half-split."""

from kvc.ops.registry import OpDef
from kvc.ops.rope import schema
from kvc.ops.rope.example import example
from kvc.ops.rope.reference import rope

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, rope, example, schema.check_values)
