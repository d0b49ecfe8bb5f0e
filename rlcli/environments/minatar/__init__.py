"""MinAtar: five Atari games in miniature, on a board of 10 x 10 cells."""
