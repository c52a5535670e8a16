"""kvc::store_retained_rows: encode rows and store them in the twin, rotated first where they are not."""

from kvc.ops.registry import OpDef
from kvc.ops.store_retained_rows import schema
from kvc.ops.store_retained_rows.example import example
from kvc.ops.store_retained_rows.reference import store_retained_rows

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, store_retained_rows, example, schema.check_values)
