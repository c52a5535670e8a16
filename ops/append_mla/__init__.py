"""kvc::append_mla: rope, quantize and store the latent and the rope of a row in one op."""

from kvc.ops.append_mla import schema
from kvc.ops.append_mla.example import example
from kvc.ops.append_mla.reference import append_mla
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, append_mla, example, schema.check_values)
