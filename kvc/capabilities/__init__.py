"""What layer kinds, encodings and kernels can do, as pure data."""
