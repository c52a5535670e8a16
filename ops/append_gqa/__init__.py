"""kvc::append_gqa: rope, quantize and store K and V in one op."""

from kvc.ops.append_gqa import schema
from kvc.ops.append_gqa.example import example
from kvc.ops.append_gqa.reference import append_gqa
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, append_gqa, example, schema.check_values)
