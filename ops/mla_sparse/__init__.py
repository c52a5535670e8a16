"""kvc::mla_sparse: absorbed attention over the rows that tokens select."""

from kvc.ops.mla_sparse import schema
from kvc.ops.mla_sparse.example import example
from kvc.ops.mla_sparse.reference import mla_sparse
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, mla_sparse, example, schema.check_values)
