"""Learning benchmark: the returns that recipes reach."""
