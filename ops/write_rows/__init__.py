"""kvc::write_rows: write row of every token."""

from kvc.ops.registry import OpDef
from kvc.ops.write_rows import schema
from kvc.ops.write_rows.example import example
from kvc.ops.write_rows.reference import write_rows

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, write_rows, example, schema.check_values)
