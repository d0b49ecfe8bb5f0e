"""Tracers: how far along time a transition looks."""
