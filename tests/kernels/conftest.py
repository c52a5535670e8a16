"""Kernels are tested on a GPU, or, where Triton's interpreter can run them, on the CPU."""

import os

import torch

# Before anything imports triton: it reads the variable once.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
