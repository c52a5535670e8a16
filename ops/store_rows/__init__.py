"""kvc::store_rows: paged write of encoded planes, any encoding."""

from kvc.ops.registry import OpDef
from kvc.ops.store_rows import schema
from kvc.ops.store_rows.example import example
from kvc.ops.store_rows.reference import store_rows

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, store_rows, example, schema.check_values)
