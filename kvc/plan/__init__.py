"""The memory plan of a spec."""
