"""Device functions that kernels of several ops share, written in Triton; nothing imports them before a kernel runs."""
