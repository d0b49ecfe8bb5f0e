"""Games: two sides and one board, the other side played by a few rules."""
