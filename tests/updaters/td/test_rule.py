"""The decorator of rules: options, defaults, and what a rule may return."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from wording import mentions

import rlcli
from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.networks.predictions import Particles
from rlcli.types import Positive
from rlcli.updaters.td import Backup, RuleContext, rule

pytestmark = pytest.mark.usefixtures("own_parts")


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
    with pytest.raises(RlcliError, match="`@rule` has no keyword `targt`") as caught:
        rule(targt={"polyak": 0.05})
    assert caught.value.hint == "did you mean `target`?"
    with pytest.raises(RlcliError) as caught:
        rule(xyz=1)
    assert mentions(
        caught.value.hint,
        "`critics`",
        "`discrete_only`",
        "`loss`",
        "`policy`",
        "`priority`",
        "`q`",
        "`target`",
        "`tracer`",
        "`transform`",
        "`unroll`",
    )


def test_a_decorator_without_parentheses_is_refused():
    with pytest.raises(RlcliError, match="was called with `bare`") as caught:

        @rule
        def bare(context: RuleContext) -> Backup:
            return Backup(context.next_q())

    assert mentions(caught.value.hint, "`@rule()`")
    with pytest.raises(RlcliError, match="was called with `boltzmann`") as caught:
        rule("boltzmann")
    assert mentions(caught.value.hint, "`@rule(policy=…)`")


def without_annotation(context, *, omega=1.0):
    pass


def positional(context, omega: float = 1.0):
    pass


def any_options(context, **options: float):
    pass


def taken(context, *, critics: int = 3):
    pass


def taken_part(context, *, parts: str = "adam"):
    pass


def without_context(*, omega: float = 1.0):
    pass


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (without_annotation, "option `omega` of .* has no annotation"),
        (positional, r"parameter `omega: float = 1\.0` of .* is not an option"),
        (any_options, r"parameter `\*\*options: float` of .* is not an option"),
        (taken, "`critics` of .* taken: it is an option of every updater made by `@"),
        (taken_part, "`parts` of .* taken: it is what every updater"),
        (without_context, "has no positional parameter"),
    ],
)
def test_a_parameter_that_cannot_be_an_option_is_refused(function, message):
    name = f"rule `{function.__name__}` of module `{__name__}`"
    with pytest.raises(RlcliError, match=message) as caught:
        rule()(function)
    assert name in caught.value.message


def test_an_option_named_like_one_of_every_updater_in_yaml_is_refused():
    def underscore(context, *, q_: float = 1.0):
        pass

    with pytest.raises(RlcliError, match=r"`q_` .* has a name that is taken"):
        rule()(underscore)


def test_an_unknown_option_is_refused_before_the_rule_is_called(tabular):
    with pytest.raises(TypeError, match="unexpected keyword argument 'omega'"):
        tabular("q_learning", omega=1.0)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda context: context.next_q(), "returned `Particles` instead of `Backup`"),
        (
            lambda context: Backup(context.next_q().mean()),
            r"bootstraps from an array of shape \(3, 5, 4\) instead of `Particles`",
        ),
        (
            lambda context: Backup(Particles(*[context.next_q().mean()] * 2)),
            r"`bootstrap_value.value` is an array of shape \(3, 5, 4\) instead of an "
            r"array \[T, B, M, K\], where \[T, B\] is \[3, 5\]",
        ),
        (
            lambda context: Backup(jax.tree.map(lambda x: x[:2], context.next_q())),
            r"`bootstrap_value.value` is an array of shape \(2, 5, 4, 1\) instead of",
        ),
        (
            lambda context: Backup(Particles(context.next_q().value, 1.0)),
            r"`bootstrap_value.probability` is `float` instead of .* \(3, 5, 4, 1\)",
        ),
        (
            lambda context: Backup(
                Particles(context.next_q().value, jnp.ones((3, 5, 4, 2)))
            ),
            r"`bootstrap_value.probability` is an array of shape \(3, 5, 4, 2\) ",
        ),
        (
            lambda context: Backup(context.next_q(), jnp.ones(3)),
            r"`probability` is an array of shape \(3,\) instead of .* M = 4",
        ),
        (
            lambda context: Backup(context.sampled_next_q(), jnp.ones(4)),
            r"`probability` is an array of shape \(4,\) instead of .* M = 1",
        ),
        (
            lambda context: Backup(context.next_q(), 1 / 4, bonus=jnp.ones((3, 5))),
            r"`bonus` is an array of shape \(3, 5\) instead of .* M = 4",
        ),
        (
            lambda context: Backup(context.next_q(), 1 / 4, bonus=None),
            "`bonus` is `NoneType` instead of a number or an array",
        ),
        (
            lambda context: Backup(context.next_q(), 1 / 4, reward=jnp.ones((3, 5, 4))),
            r"`reward` is an array of shape \(3, 5, 4\) instead of .* \[T, B\]",
        ),
        (
            lambda context: Backup(
                context.next_q(), 1 / 4, target_policy=jnp.ones((3, 5))
            ),
            r"`target_policy` is an array of shape \(3, 5\) instead of .* with A = 4",
        ),
        (
            lambda context: Backup(
                context.next_q(), 1 / 4, target_policy=jnp.ones((3, 5, 1))
            ),
            r"`target_policy` is an array of shape \(3, 5, 1\) instead of .* A = 4",
        ),
        (
            lambda context: Backup(context.next_q()),
            "returned 4 distributions for each row without their `probability`",
        ),
    ],
)
def test_a_result_that_is_no_backup_of_rows_is_refused(result, message, tabular):
    @rule()
    def wrong(context: RuleContext) -> Backup:
        """Returns something else."""
        return result(context)

    updater = tabular("wrong")
    name = f"rule `wrong` of module `{__name__}`"
    with pytest.raises(RlcliError, match=name + ".*" + message):
        updater.updated(updater.rows(), *np.zeros((2, 6, 4), "f4"))


@pytest.mark.parametrize("shape", [(3, 5, 1), (1, 1, 4), (1,), (4,)])
def test_a_probability_of_one_entry_along_an_axis_is_that_of_all_entries(
    shape, tabular
):
    def updated(probability):
        @rule()
        def uniform(context: RuleContext) -> Backup:
            """The mean of all action values."""
            return Backup(context.next_q(), probability)

        updater = tabular("uniform")
        values = np.arange(48.0, dtype="f4").reshape(2, 6, 4)
        return updater.updated(updater.rows(), *values)[0]

    ours = updated(jnp.full(shape, 1 / 4))
    np.testing.assert_array_equal(ours, updated(1 / 4))


def test_check_refuses_wrong_shapes_at_the_place_of_the_updater():
    @rule()
    def transposed(context: RuleContext) -> Backup:
        """Probabilities with the actions first."""
        next_q = context.next_q()
        return Backup(next_q, jnp.moveaxis(next_q.mean(), -1, 0))

    recipe = {"environment": "FrozenLake-v1", "network": "table"}
    with pytest.raises(RlcliError, match=r"\(4, 1, 1\) instead of .* M = 4"):
        rlcli.check({**recipe, "updater": "transposed", "train": {"steps": 10}})


def test_the_target_policy_of_a_rule_is_by_default_the_acting_policy(tabular):
    @rule()
    def uniform_backup(context: RuleContext) -> Backup:
        return Backup(context.next_q(), 1 / 4)

    ours = tabular("uniform_backup", target={"every": 100})
    rows, values = ours.rows(), np.arange(24.0).reshape(6, 4) % 5
    estimates = ours.estimate(ours.state(-values, values)[0], rows, jax.random.key(0))
    is_best = values[rows.obs, rows.action] == values[rows.obs].max(-1)
    expected = np.where(is_best, 0.85, 0.05)  # ε = 0.2
    np.testing.assert_allclose(np.exp(estimates.log_prob), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["q_learning", "double_q_learning"])
def test_equal_best_actions_are_equally_likely_in_the_target_policy(name, tabular):
    ours = tabular(name, target={"every": 100})
    rows, values = ours.rows(), np.array([[1.0, 3, 3, 0]] * 6)
    estimates = ours.estimate(ours.state(values, values)[0], rows, jax.random.key(0))
    expected = np.where(np.isin(rows.action - ours.start, [1, 2]), 0.5, 0.0)
    np.testing.assert_allclose(np.exp(estimates.log_prob), expected, atol=1e-6)
