"""Benchmarks: each measures rlcli and a reference in the same run."""
