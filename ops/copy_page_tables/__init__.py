"""kvc::copy_page_tables: slot tables to page tables."""

from kvc.ops.copy_page_tables import schema
from kvc.ops.copy_page_tables.example import example
from kvc.ops.copy_page_tables.reference import copy_page_tables
from kvc.ops.registry import OpDef

OP = OpDef(schema.DEFINITION, schema.check, schema.fake, copy_page_tables, example, schema.check_values)
