"""Environments: pure JAX cores, the vector made of them, and adapters to others."""
