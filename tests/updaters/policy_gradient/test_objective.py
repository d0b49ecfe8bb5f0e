"""The decorator of objectives: options, defaults and requirements."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from wording import mentions

import rlcli
from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.networks.functions import separate_network
from rlcli.networks.torsos import table
from rlcli.policies.sampled import sampled
from rlcli.types import Clock, Positive, Transition
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.policy_gradient import ObjectiveContext, PolicyLoss, objective
from rlcli.updaters.policy_gradient.actor_critic import UPDATER_METRICS
from rlcli.updaters.policy_gradient.vanilla_pg import a2c

pytestmark = pytest.mark.usefixtures("own_parts")
STATES, ACTIONS, SHAPE = 3, 2, (4, 2)
ENTROPY = [{"name": "entropy", "weight": 0.01}]
COMMON = {"value_weight": 0.5, "normalize_advantage": False, "regularizers": ENTROPY}
EPOCHS = {"epochs": 1, "minibatches": 1, "sequence": None}
OPTIONS = {
    "vanilla_pg": {"baseline": True, **COMMON},
    "a2c": {"baseline": True, **COMMON},
    "reinforce": {
        "baseline": False,
        "value_weight": 0.0,
        "normalize_advantage": False,
        "regularizers": [],
    },
    "v_trace": {"sequence": 20, **COMMON},
    "cross_entropy": {"filter": "positive", "temperature": 1.0, **COMMON, **EPOCHS},
    "ppo": {
        "clip_ratio": 0.2,
        "value_weight": 0.5,
        "value_clip_ratio": None,
        "normalize_advantage": True,
        "regularizers": ENTROPY,
        "kl_limit": None,
        "epochs": 4,
        "minibatches": 4,
        "sequence": None,
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_updater_has_its_own_options_and_those_it_shares(name):
    options = registry.options(registry.find("updater", name).factory)
    assert {key: option.default for key, option in options.items()} == OPTIONS[name]
    assert list(options) == list(OPTIONS[name])


def build(factory, **options):
    observation = gymnasium.spaces.Discrete(STATES)

    def networks(name, head):
        return separate_network(name, table(), head(), observation)

    spaces = Spaces(observation, gymnasium.spaces.Discrete(ACTIONS))
    policies = lambda distribution, space: sampled(distribution)  # noqa: E731
    return factory(Parts(spaces, networks, policies, optax.sgd(1.0)), **options)


def update(updater, log_prob=0.0):
    zeros = np.zeros(SHAPE, "f4")
    rows = Transition(
        obs=zeros.astype(int),
        action=zeros.astype(int),
        reward=zeros + 2,
        discount=zeros,
        next_obs=zeros.astype(int),
        first=zeros > 0,
        last=zeros > 0,
        extras={"log_prob": zeros + log_prob}
        if "log_prob" in updater.traits.requires
        else {},
    )
    clock = Clock.zero()._replace(compute_metrics=np.bool_(True))

    @jax.jit
    def update_once(key):
        return updater.update(updater.init(key), rows, zeros + 1, clock, key)

    return update_once(jax.random.key(0))


@pytest.mark.slow
def test_an_objective_receives_its_options_and_its_loss_is_minimized():
    @objective(requires=("log_prob",), regularizers=[], value_weight=0.0)
    def scaled(context: ObjectiveContext, *, factor: Positive = 1.0) -> PolicyLoss:
        """A scaled policy gradient."""
        loss = -factor * context.advantage * context.log_prob
        return PolicyLoss(loss, {"ratio": jnp.exp(context.log_ratio)})

    assert registry.find("updater", "scaled").factory is scaled
    assert scaled.__doc__ == "A scaled policy gradient."
    _, report = update(build(scaled, factor=3.0), log_prob=np.log(0.25))
    # π is uniform over two actions, v(s) is 0, and G is 2.
    assert report.metrics["loss"] == pytest.approx(-3 * 2 * np.log(0.5))
    assert report.metrics["ratio"] == pytest.approx(0.5 / 0.25)


def test_options_that_the_decorator_does_not_name_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'epochs'"):
        build(a2c, epochs=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'baseline'"):
        build(registry.find("updater", "cross_entropy").factory, baseline=True)


def test_an_option_may_be_the_rows_of_a_replay_sample():
    factory = registry.find("updater", "v_trace").factory
    assert build(factory).traits.sequence_length == 20
    assert build(factory, sequence=7).traits.sequence_length == 7
    assert build(a2c).traits.sequence_length == 1


def test_a_log_ratio_without_its_requirement_is_an_error_that_says_so():
    @objective()
    def forgetful(context: ObjectiveContext) -> PolicyLoss:
        """Forgets what it requires."""
        return PolicyLoss(jnp.exp(context.log_ratio))

    with pytest.raises(RlcliError, match="uses `log_ratio`") as caught:
        update(build(forgetful))
    assert 'requires=("log_prob",)' in caught.value.hint


def test_kl_limit_requires_the_log_probability_itself():
    @objective(kl_limit=None)
    def limited(context: ObjectiveContext) -> PolicyLoss:
        """May stop early, but reads no extra."""
        return PolicyLoss(-context.advantage * context.log_prob)

    assert build(limited).traits.requires == ()
    updater = build(limited, kl_limit=1e-9)
    assert updater.traits.requires == ("log_prob",)
    _, report = update(updater, log_prob=np.log(0.25))
    assert report.metrics["stopped"] == 1
    ppo = registry.find("updater", "ppo").factory
    assert build(ppo, kl_limit=0.1).traits.requires == ("log_prob",)


def test_an_extra_that_does_not_exist_is_an_error_that_lists_the_extras():
    @objective(requires=("log_probs",))
    def misspelled(context: ObjectiveContext) -> PolicyLoss:
        """Requires an extra with a misspelled name."""
        return PolicyLoss(-context.log_prob)

    recipe = {"environment": "FrozenLake-v1", "network": "table"}
    with pytest.raises(
        RlcliError, match=r"the extra `log_probs`, .* `cut`, `log_prob`"
    ):
        rlcli.check({**recipe, "updater": "misspelled"})


def test_extras_as_a_text_instead_of_a_tuple_are_refused():
    with pytest.raises(RlcliError, match="`log_prob` instead of a tuple") as caught:
        objective(requires=("log_prob"))
    assert mentions(caught.value.hint, '`requires=("log_prob",)`')
    with pytest.raises(RlcliError, match="`None` instead of a tuple of names"):
        objective(requires=None)


@pytest.mark.parametrize("name", ["sequense", "value_weight"])
def test_rows_that_name_no_option_of_the_objective_are_refused(name):
    @objective(sequence_length=name)
    def sequential(context: ObjectiveContext, *, sequence: int = 2) -> PolicyLoss:
        """Names another option."""
        return PolicyLoss(-context.log_prob)

    with pytest.raises(RlcliError, match=f"names `{name}`, .* of objective `seq"):
        build(sequential)


def test_a_metric_named_like_a_field_of_every_row_is_refused():
    @objective()
    def overwriting(context: ObjectiveContext) -> PolicyLoss:
        """Has a metric that rows of metrics use for the step."""
        return PolicyLoss(-context.log_prob, {"T": context.value})

    recipe = {"environment": "FrozenLake-v1", "network": "table"}
    with pytest.raises(RlcliError, match="the updater has a metric `T`, but rows"):
        rlcli.check({**recipe, "updater": "overwriting"})


@pytest.mark.parametrize("name", sorted(UPDATER_METRICS))
def test_a_metric_named_like_one_of_the_updater_is_refused(name):
    @objective()
    def colliding(context: ObjectiveContext) -> PolicyLoss:
        """Returns a metric that rlcli logs."""
        return PolicyLoss(-context.log_prob, {name: context.value})

    with pytest.raises(RlcliError, match=f"`colliding` .* returned a metric `{name}`"):
        update(build(colliding))


def test_the_metrics_that_an_objective_may_not_return_are_those_of_the_updater():
    ppo = registry.find("updater", "ppo").factory
    _, report = update(build(ppo, kl_limit=0.1))
    assert report.metrics.keys() == UPDATER_METRICS | {"kl", "clip_fraction"}


def test_an_objective_without_parentheses_is_refused():
    with pytest.raises(RlcliError) as caught:

        @objective
        def bare(context: ObjectiveContext) -> PolicyLoss:
            return PolicyLoss(-context.log_prob)

    assert mentions(caught.value.hint, "`@objective()`")


def test_only_the_options_that_the_decorator_names_are_taken():
    def wait(context: ObjectiveContext, *, epochs: int = 1) -> PolicyLoss:
        """Has an option that other objectives share."""
        return PolicyLoss(-context.log_prob)

    assert registry.options(objective()(wait))["epochs"].default == 1
    with pytest.raises(RlcliError, match=r"option `epochs` of .* has a name that is"):
        objective(epochs=4)(wait)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda loss: loss, r"returned an array of shape \(4, 2\) instead of `Poli"),
        (
            lambda loss: PolicyLoss(jnp.mean(loss)),
            r"the loss is an array of shape \(\) instead of .* \(4, 2\)",
        ),
        (
            lambda loss: PolicyLoss(loss, {"m": jnp.mean(loss)}),
            r"the metric `m` is an array of shape \(\) instead of .* \(4, 2\)",
        ),
        (
            lambda loss: PolicyLoss(loss, {"m": 0.5}),
            r"the metric `m` is `float` instead of .* \(4, 2\)",
        ),
        (lambda loss: PolicyLoss(loss, {3: loss}), "metric named `3`, not a string"),
        (lambda loss: PolicyLoss(loss, loss), "returned, as its metrics, an array of"),
    ],
)
def test_a_result_that_is_not_one_loss_per_row_is_refused(result, message):
    @objective()
    def wrong(context: ObjectiveContext) -> PolicyLoss:
        """Returns something else."""
        return result(-context.log_prob)

    name = f"objective `wrong` of module `{__name__}`"
    with pytest.raises(RlcliError, match=name + ".*" + message):
        update(build(wrong))


def test_an_undecorated_objective_is_a_function_of_its_context():
    ppo = registry.find("updater", "ppo").factory
    zeros, false = np.zeros(4, "f4"), np.zeros(4, bool)
    context = ObjectiveContext(
        log_prob=jnp.log(jnp.array([0.5, 1.1, 2.0, 2.0])),
        advantage=jnp.array([1.0, 1.0, 1.0, -1.0]),
        target=zeros,
        value=zeros,
        weight=zeros + 1,
        steps=Transition(
            zeros,
            zeros,
            zeros,
            zeros,
            zeros,
            false,
            false,
            extras={"log_prob": zeros},
        ),
    )
    loss, metrics = ppo.__wrapped__(context, clip_ratio=0.2)
    np.testing.assert_allclose(loss, [-0.5, -1.1, -1.2, 2.0], rtol=1e-6)
    np.testing.assert_array_equal(metrics["clip_fraction"], [True, False, True, True])
