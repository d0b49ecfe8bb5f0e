"""Toy text: small worlds of numbered cells, for tables."""
