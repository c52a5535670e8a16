"""kvc::place_own_rows: a step's own rows among gathered ones, as they were computed."""

from kvc.ops.place_own_rows import schema
from kvc.ops.place_own_rows.example import example
from kvc.ops.place_own_rows.reference import place_own_rows
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, place_own_rows, example, schema.check_values)
