"""Benchmark cases of kvc::copy_page_tables; on a GPU ``heads`` is the number of pools."""

from dataclasses import replace

from kvc.ops.bench_shapes import SMOLLM2, STEPS, Case, decode

CASES = STEPS
_TABLE = replace(SMOLLM2, tokens_per_page=1, spare_pages=0)
GPU_CASES = {
    "1 pool, 1 row of 65,536": Case(decode(replace(_TABLE, heads=1), 65_536)),
    "8 pools, 256 rows of 4,096": Case(decode(replace(_TABLE, heads=8), 4096, 256)),
}
