"""Benchmarks: each prints ratios against peers measured in the same run, and writes them as JSON."""
