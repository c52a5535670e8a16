"""Programs, graphs, their canonical text, and lowering."""
