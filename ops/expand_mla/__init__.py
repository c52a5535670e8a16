"""kvc::expand_mla: latent rows -> K and V of context attention."""

from kvc.ops.expand_mla import schema
from kvc.ops.expand_mla.example import example
from kvc.ops.expand_mla.reference import expand_mla
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, expand_mla, example, schema.check_values)
