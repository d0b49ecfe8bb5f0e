"""Bandits: arms to pull, new ones in every episode, to be told apart within it."""
