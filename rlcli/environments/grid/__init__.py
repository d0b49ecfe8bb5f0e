"""Grids: rooms, mazes and maps of cells that one walks through."""
