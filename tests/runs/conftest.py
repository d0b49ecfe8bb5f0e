"""Fixtures of the tests of run folders."""

import time

import pytest


@pytest.fixture
def noon(monkeypatch):
    """A clock that stands still at 2026-11-20T10:00:00Z."""
    then = time.strptime("2026-11-20T10:00:00", "%Y-%m-%dT%H:%M:%S")
    monkeypatch.setattr(time, "gmtime", lambda *seconds: then)
