"""The decorator of rules: options, defaults, and what a rule may return."""

import numpy as np
import pytest

from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.types import Positive
from rlcli.updaters.td import Backup, RuleContext, rule


@pytest.fixture(autouse=True)
def _separate_registry(monkeypatch):
    registry.names("updater")  # loads the built-in ones
    monkeypatch.setattr(registry.parts, "_BUILT_IN", dict(registry.parts._BUILT_IN))


def test_a_rule_has_its_own_options_and_those_of_every_rule():
    @rule(policy="boltzmann", tracer="lambda_return", unroll=8, critics=2)
    def example(context: RuleContext, *, scale: Positive = 3.0) -> Backup:
        """An example."""
        return Backup(context.next_q(), bonus=scale)

    part = registry.find("updater", "example")
    facts = {"policy": "boltzmann", "tracer": "lambda_return", "unroll": 8}
    assert part.factory is example and dict(part.facts) == facts
    options = registry.options(example)
    assert {name: option.default for name, option in options.items()} == {
        "scale": 3.0,
        "q": "all",
        "critics": 2,
        "target": None,
        "loss": "huber",
        "transform": None,
        "priority": "td_error",
    }
    assert options["scale"].annotation == Positive


def test_a_default_of_an_unknown_option_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match="unexpected keyword argument 'targt'"):
        rule(targt={"polyak": 0.05})


def test_an_unknown_option_is_refused_before_the_rule_is_called(tabular):
    with pytest.raises(TypeError, match="unexpected keyword argument 'omega'"):
        tabular("q_learning", omega=1.0)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda context: context.next_q(), "rule `wrong` returned `Particles`"),
        (
            lambda context: Backup(context.next_q().mean()),
            "rule `wrong` bootstraps from `.*` instead of `Particles`",
        ),
    ],
)
def test_a_result_that_is_no_backup_is_refused(result, message, tabular):
    @rule()
    def wrong(context: RuleContext) -> Backup:
        """Returns something else."""
        return result(context)

    updater = tabular("wrong")
    with pytest.raises(RlcliError, match=message):
        updater.updated(updater.rows(), *np.zeros((2, 6, 4), "f4"))


def test_the_target_policy_of_a_rule_is_by_default_the_acting_policy(tabular):
    @rule()
    def uniform_backup(context: RuleContext) -> Backup:
        return Backup(context.next_q(), 1 / 4)

    ours = tabular("uniform_backup", target={"every": 100})
    rows, values = ours.rows(), np.arange(24.0).reshape(6, 4) % 5
    estimates = ours.estimate(ours.state(-values, values)[0], rows)
    is_best = values[rows.obs, rows.action] == values[rows.obs].max(-1)
    expected = np.where(is_best, 0.85, 0.05)  # ε = 0.2
    np.testing.assert_allclose(np.exp(estimates.log_prob), expected, rtol=1e-5)
