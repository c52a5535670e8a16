"""kvc::index_topk: the best rows of every token, by an indexer's scores."""

from kvc.ops.index_topk import schema
from kvc.ops.index_topk.example import example
from kvc.ops.index_topk.reference import index_topk
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, index_topk, example, schema.check_values)
