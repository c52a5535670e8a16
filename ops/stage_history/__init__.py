"""kvc::stage_history: dense rows of every sequence, gathered from a history and its twin into staging."""

from kvc.ops.registry import OpDef
from kvc.ops.stage_history import schema
from kvc.ops.stage_history.example import example
from kvc.ops.stage_history.reference import stage_history

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, stage_history, example, schema.check_values)
