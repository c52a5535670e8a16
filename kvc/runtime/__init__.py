"""Loading, cache management and replay."""
