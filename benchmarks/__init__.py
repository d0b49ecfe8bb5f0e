"""Benchmarks: what is measured, with a reference beside it in the same run."""
