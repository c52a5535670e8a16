"""How values become bytes and back, one folder a codec."""
