"""kvc::write_back: a step's own rows from staging into a history and its twin."""

from kvc.ops.registry import OpDef
from kvc.ops.write_back import schema
from kvc.ops.write_back.example import example
from kvc.ops.write_back.reference import write_back

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, write_back, example, schema.check_values)
