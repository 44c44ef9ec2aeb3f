"""Compares how well a net learns in each order of delivery: `python -m bench.accuracy`."""
