"""Benchmarks. Each prints its ratios to peers that were measured in the same run, and writes them as JSON."""
