"""Datasets and transforms of PyTorch that run natively: which ones, as what, and why others do not."""
