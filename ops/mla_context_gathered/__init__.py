"""kvc::mla_context_gathered: context attention of latent layers whose cached rows were gathered before."""

from kvc.ops.mla_context_gathered import schema
from kvc.ops.mla_context_gathered.example import example
from kvc.ops.mla_context_gathered.reference import mla_context_gathered
from kvc.ops.registry import OpDef

OP = OpDef(
    schema.DEFINITION, schema.check, schema.fake, mla_context_gathered, example, schema.check_values, schema.scratch
)
