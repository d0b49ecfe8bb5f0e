"""How well recipes learn: `python -m benchmarks.learning`."""
