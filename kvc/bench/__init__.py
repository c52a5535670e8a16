"""Times of the ops and of whole steps on a GPU, beside what the GPU can do and what other libraries take.

`timing` measures calls, `ceilings` the GPU, `cases` makes the calls of the ops' `bench.py`, `work` counts their bytes
and operations, `peers` finds other libraries' kernels, `rows` is what is written down.
"""
