"""The passes, one file each, and their manager."""
