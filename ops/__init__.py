"""The kvc:: custom ops, one folder an op."""
