"""kvc::step_positions: positions and lengths of a step."""

from kvc.ops.registry import OpDef
from kvc.ops.step_positions import schema
from kvc.ops.step_positions.example import example
from kvc.ops.step_positions.reference import step_positions

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, step_positions, example, schema.check_values)
