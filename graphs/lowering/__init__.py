"""From a resolved spec and its plan to a program, nothing optimised: every layer graph is self-contained.

One module a layer kind (`gqa.py`), registered in `lower.LAYER_KINDS`. Imported by `kvc.compiler` alone.
"""
