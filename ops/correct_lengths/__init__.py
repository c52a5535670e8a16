"""kvc::correct_lengths: lengths that the host assumed -> lengths that are true."""

from kvc.ops.correct_lengths import schema
from kvc.ops.correct_lengths.example import example
from kvc.ops.correct_lengths.reference import correct_lengths
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, correct_lengths, example, schema.check_values)
