"""kvc::project_heads: every head by a matrix of its own."""

from kvc.ops.project_heads import schema
from kvc.ops.project_heads.example import example
from kvc.ops.project_heads.reference import project_heads
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, project_heads, example)
