"""kvc::mla_decode_gathered: generation attention over latent rows that were gathered before, in the absorbed form."""

from kvc.ops.mla_decode_gathered import schema
from kvc.ops.mla_decode_gathered.example import example
from kvc.ops.mla_decode_gathered.reference import mla_decode_gathered
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, mla_decode_gathered, example, schema.check_values)
