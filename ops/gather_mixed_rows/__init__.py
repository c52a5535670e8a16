"""kvc::gather_mixed_rows: paged read of a history with its twin over it."""

from kvc.ops.gather_mixed_rows import schema
from kvc.ops.gather_mixed_rows.example import example
from kvc.ops.gather_mixed_rows.reference import gather_mixed_rows
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, gather_mixed_rows, example, schema.check_values)
