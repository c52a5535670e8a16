"""Spec files: models, YAML positions, checks and the resolved form."""
