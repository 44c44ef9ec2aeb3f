"""Jobs that share, and reading in sequence."""
