"""kvc::overlay_retained_rows: the twin's rows over gathered ones."""

from kvc.ops.overlay_retained_rows import schema
from kvc.ops.overlay_retained_rows.example import example
from kvc.ops.overlay_retained_rows.reference import overlay_retained_rows
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, overlay_retained_rows, example, schema.check_values)
