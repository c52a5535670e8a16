"""kvc::mla_decode: paged generation attention over latent rows, in the absorbed form."""

from kvc.ops.mla_decode import schema
from kvc.ops.mla_decode.example import example
from kvc.ops.mla_decode.reference import mla_decode
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, mla_decode, example, schema.check_values)
