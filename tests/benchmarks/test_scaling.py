"""The benchmark of scaling: its rows are valid, and sweeps have the options it sets."""

import pytest

from benchmarks import scaling
from rlcli.recipe import load_recipe


@pytest.mark.parametrize("axis", scaling.AXES)
def test_every_row_is_a_valid_recipe(axis):
    for _, recipe, settings, seeds in scaling.AXES[axis]():
        load_recipe(recipe, [*settings, *scaling.NO_END, f"train.seeds={seeds}"])


def test_the_trials_of_a_sweep_are_counted(monkeypatch, capsys):
    pytest.importorskip("optuna")
    monkeypatch.setattr(scaling, "SWEEPS", (10, 12))
    scaling.print_trials()
    rows = capsys.readouterr().out.splitlines()[3:]
    assert [row.split()[1] for row in rows] == ["10", "12"]
