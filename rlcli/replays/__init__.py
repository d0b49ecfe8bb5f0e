"""Replays: memories of raw steps, and which of them are learnt from again."""
