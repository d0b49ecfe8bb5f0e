"""Helpers for tests that build recipes from text."""

import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.training import train

CARTPOLE = "environment: CartPole-v1\n"


def setup_of(text_or_data, tmp_path=None, seeds=None):
    if isinstance(text_or_data, str):
        path = tmp_path / "mine.yaml"
        path.write_text(text_or_data, encoding="utf-8")
        text_or_data = path
    return build(recipe.load_recipe(text_or_data), seeds)


def build_error(text: str, tmp_path) -> RlcliError:
    """The error of a valid recipe whose parts are incompatible."""
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RlcliError) as caught:
        train(path, runs=tmp_path / "runs", quiet=True)
    assert not (tmp_path / "runs").exists()  # a refused recipe leaves no run
    assert caught.value.message.startswith(f"{path}:")
    return caught.value


def built(text, tmp_path):
    """The recipe, and what is built of it."""
    setup = setup_of(text, tmp_path)
    return recipe.load_recipe(tmp_path / "mine.yaml"), setup
