"""Bridges to model libraries."""
