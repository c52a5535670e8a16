"""kvc::gqa_context_gathered: context attention whose cached rows were gathered before."""

from kvc.ops.gqa_context_gathered import schema
from kvc.ops.gqa_context_gathered.example import example
from kvc.ops.gqa_context_gathered.reference import gqa_context_gathered
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, gqa_context_gathered, example, schema.check_values)
