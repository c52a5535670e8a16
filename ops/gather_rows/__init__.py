"""kvc::gather_rows: dequantizing paged read, any encoding."""

from kvc.ops.gather_rows import schema
from kvc.ops.gather_rows.example import example
from kvc.ops.gather_rows.reference import gather_rows
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, gather_rows, example, schema.check_values)
