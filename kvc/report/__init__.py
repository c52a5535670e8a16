"""What people look at: tables, bars, diffs."""
