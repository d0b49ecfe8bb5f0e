"""TD updaters: noise, sampling, action spaces, every pair of rule and head."""

import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_trees import normal_like
from tiers import quick_first
from wording import mentions

from rlcli import recipe, registry, spaces
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.types import Clock, Network, Policy, Transition
from rlcli.updaters import Parts, Spaces

KEY = jax.random.key(0)
CLOCK = Clock.zero()
DISCRETE_ONLY = (
    *("q_learning", "double_q_learning", "clipped_double_q_learning"),
    *("soft_q_learning", "soft_clipped_double_q_learning", "munchausen"),
    "expected_sarsa",
)
RULES = ("sarsa", *DISCRETE_ONLY)
HEADS = {
    "scalar": {},
    "categorical": {"atoms": 5},
    "quantile": {"quantiles": 5},
    "implicit_quantile": {"samples": 5, "target_samples": 4, "policy_samples": 3},
}
# By kind of q: an option of the rule, and one of the head.
QS = {"all": ({}, {"dueling": True}), "one": ({"transform": "log"}, {})}


def build_parts(updater, head, environment="CartPole-v1", **more):
    data = {
        "environment": environment,
        "network": {"name": "mlp", "layers": [8], "head": head},
        "updater": updater,
        "train": {"steps": 1_000},
        **more,
    }
    parsed = recipe.load_recipe(data)
    assert recipe.load_recipe(recipe.resolve(parsed)) == parsed
    setup = build(parsed)
    environment, agent = setup.environment, setup.agent
    return environment, agent


def unroll(environment, steps=3):
    """Rows `[T, 1]` of zeros, with reward and discount 1."""

    def row(space):
        return np.zeros((steps, 1, *space.shape), spaces.dtype(space))

    flag, one = np.zeros((steps, 1), bool), np.ones((steps, 1), "f4")
    obs, action = row(environment.observation), row(environment.action)
    return Transition(obs, action, one, one, obs, flag, flag, {})


def check_shapes(environment, agent):
    """Traces an agent that is initialized, acts and learns from three rows."""

    def run(key):
        rows = unroll(environment)
        before = agent.init(key, rows)
        after, metrics = agent.learn(before, rows, CLOCK, key)
        inputs = (rows.obs[0], agent.policy.initial(1), rows.first[0])
        noise = agent.policy.draw(key, 1)
        for act in (agent.policy.explore, agent.policy.exploit):
            output, _ = act(agent.acting(after), *inputs, noise)
            assert output.action.shape == rows.action.shape[1:]
            assert output.extras["log_prob"].shape == (1,)
        return before, after, metrics

    before, after, metrics = jax.eval_shape(run, KEY)
    assert jax.tree.map(str, before) == jax.tree.map(str, after)
    assert {"loss", "td_error"} < set(metrics)
    assert len({"q", "v"} & set(metrics)) == 1


def every_combination():
    """Rule, head and kind of q; quick is one of each rule, and both kinds per head."""
    pairs = itertools.product(enumerate(RULES), enumerate(HEADS), enumerate(QS))
    for (i, rule), (j, head), (k, q) in pairs:
        is_quick = j == i % 4 and k == (i + i // 4) % 2
        yield pytest.param(rule, head, q, marks=() if is_quick else pytest.mark.slow)


@pytest.mark.parametrize(("name", "head", "q"), [*every_combination()])
@pytest.mark.slow
def test_every_rule_supports_every_head_for_one_action_and_for_all(name, head, q):
    rule, option = QS[q]
    options = {"name": head, **HEADS[head], "noisy": True, **option}
    check_shapes(*build_parts({"name": name, "q": q, **rule}, options))


@pytest.mark.parametrize("head", quick_first(HEADS))
def test_state_values_support_every_head(head):
    check_shapes(*build_parts("simple_td", {"name": head, **HEADS[head]}))


@pytest.mark.parametrize("head", quick_first(HEADS))
def test_sarsa_of_one_action_supports_a_box(head):
    box = "probe-continuous-action"
    options = {"name": head, **HEADS[head]}
    sarsa = {"name": "sarsa", "q": "one", "critics": 2}
    check_shapes(*build_parts(sarsa, options, box, policy="random"))
    check_shapes(*build_parts("simple_td", options, box))


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {"q": q}) for name, q in itertools.product(DISCRETE_ONLY, ["all", "one"])]
    + [("sarsa", {"q": "all"})],
)
def test_a_rule_for_discrete_actions_refuses_a_box_by_name(name, options):
    factory = registry.find("updater", name).factory
    box = gymnasium.spaces.Box(-1, 1, (2,))
    with pytest.raises(
        RlcliError, match=f"updater `{name}` needs a Discrete"
    ) as caught:
        both = Spaces(gymnasium.spaces.Discrete(2), box)
        factory(Parts(both, Network, Policy, optax.sgd(1.0)), **options)
    assert "Box" in caught.value.message
    assert "use `ppo` for a Box" in caught.value.hint


@pytest.mark.slow
def test_one_action_and_all_actions_critics_learn_the_same(tabular):
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(2, 6, 4)).astype("f4")
    for name in ("double_q_learning", "munchausen"):
        results = []
        for q, shape in [("all", (2, 6, 4)), ("one", (2, 24, 1))]:
            ours = tabular(name, start=3, q=q, target={"every": 9})
            new, report = ours.updated(ours.rows(), *tables.reshape(shape))
            results.append((np.asarray(new).ravel(), report.priority))
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_penalty_is_given_the_index_of_the_action(tabular):
    values = np.random.default_rng(0).normal(size=(6, 4)).astype("f4")
    values = np.stack([values, -values])  # of two critics
    updaters = [tabular("cql", start=start) for start in (0, 3)]
    tables = [ours.updated(ours.rows(), values, values)[0] for ours in updaters]
    np.testing.assert_array_equal(*tables)


@pytest.mark.slow
def test_network_noise_affects_exploring_and_not_exploiting():
    environment, agent = build_parts(
        {"name": "q_learning"},
        {"noisy": True},
        policy={"name": "epsilon_greedy", "epsilon": 0.0},
    )
    params = agent.acting(agent.init(KEY, unroll(environment)))
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype("f4") / 10
    begin = jnp.ones(64, bool)

    @jax.jit
    def actions(key):
        noise = agent.policy.draw(key, 64)
        inputs = (params, obs, agent.policy.initial(64), begin, noise)
        return [
            act(*inputs)[0].action
            for act in (agent.policy.explore, agent.policy.exploit)
        ]

    explored, exploited = zip(
        *map(actions, jax.random.split(jax.random.key(1), 20)), strict=True
    )
    assert len(np.unique(exploited, axis=0)) == 1
    assert len(np.unique(explored, axis=0)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("head", ["scalar", "implicit_quantile"])
def test_each_environment_explores_with_its_own_network_noise(head, tabular):
    """All values are 0, so that the noise alone selects the action of one state."""
    policy = tabular("q_learning", {"name": head, "noisy": True}).policy
    ours = tabular("q_learning", {"name": head, "noisy": True}).whole
    params = ours.init(KEY).params
    obs, begin = np.zeros(400, int), jnp.ones(400, bool)
    noise = policy.draw(KEY, 400)
    decision, _ = policy.explore(params, obs, policy.initial(400), begin, noise)
    share = np.bincount(decision.action, minlength=4) / 400
    np.testing.assert_allclose(share, 0.25, atol=0.1)


def test_the_distribution_of_a_policy_is_that_of_the_values_without_noise(tabular):
    ours = tabular("q_learning", {"noisy": True})
    params = normal_like(jax.eval_shape(ours.whole.init, KEY).params)
    obs, begin = np.arange(6), np.ones(6, bool)
    inputs = params, obs, ours.policy.initial(6), begin
    likely = np.exp(ours.policy.inspection.parameters(*inputs))
    values = ours.policy.inspection.action_values(*inputs)
    is_best = values == values.max(-1, keepdims=True)
    np.testing.assert_allclose(likely, np.where(is_best, 0.85, 0.05), rtol=1e-5)


def test_network_noise_does_not_change_the_random_numbers_of_the_policy():
    _, agent = build_parts("q_learning", {}, policy={"name": "epsilon_greedy"})

    @jax.jit
    def numbers(key):
        noise, ours = agent.policy.draw(key, 5)
        uniform = jax.random.uniform(key, (5, 3))
        bits = jax.random.bits(key, (100_000,))
        # Policies fold in 0, 1, … for the parts of an action.
        folded = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(1_000))
        data = map(jax.random.key_data, (ours, folded))
        return noise, uniform, bits, *data

    noise, uniform, bits, ours, folded = jax.device_get(numbers(KEY))
    np.testing.assert_array_equal(noise[0], uniform[:, 0])
    np.testing.assert_array_equal(noise[1], uniform[:, 1:])
    assert not np.isin(ours, bits).all()
    assert not (folded == ours).all(-1).any()


@pytest.mark.parametrize(
    ("name", "head", "draws"),
    [
        ("double_q_learning", {}, False),
        ("double_q_learning", {"name": "quantile"}, False),
        ("double_q_learning", {"noisy": True}, True),
        ("double_q_learning", {"name": "implicit_quantile"}, True),
        ("sarsa", {}, True),
    ],
)
def test_an_update_depends_on_its_key_only_if_it_samples(name, head, draws, tabular):
    ours = tabular(name, head, target={"every": 9})
    state = jax.eval_shape(ours.whole.init, KEY)
    params = normal_like(state.params)
    ones = np.ones((3, 5), "f4")
    losses = [
        ours.update(params, params, ours.rows(), ones, key)[1].priority.tolist()
        for key in jax.random.split(KEY, 2)
    ]
    assert (losses[0] != losses[1]) == draws


def test_acting_uses_only_the_parameters(tabular):
    ours = tabular("double_q_learning").whole
    state = jax.eval_shape(ours.init, KEY)
    assert ours.acting(state) is state.params


def test_rules_that_need_a_target_have_one_by_default():
    rules_with_target = {
        name
        for name in RULES
        if registry.options(registry.find("updater", name).factory)["target"].default
    }
    assert rules_with_target == {
        *("double_q_learning", "clipped_double_q_learning", "munchausen"),
        "soft_clipped_double_q_learning",
    }


def test_the_options_of_a_rule_are_the_common_ones_and_its_own():
    def options(name):
        options = registry.options(registry.find("updater", name).factory)
        return {key: option.default for key, option in options.items()}

    common = {"q": "all", "critics": 1, "target": None, "loss": "huber"}
    common |= {"transform": None, "priority": "td_error"}
    assert options("q_learning") == options("expected_sarsa") == common
    assert options("soft_q_learning") == {**common, "temperature": 1.0}
    assert options("clipped_double_q_learning")["critics"] == 2
    soft_clipped = options("soft_clipped_double_q_learning")
    assert (soft_clipped["critics"], soft_clipped["temperature"]) == (2, 1.0)
    own = {"temperature": 0.03, "alpha": 0.9, "clip": -1.0}
    assert options("munchausen").items() >= own.items()


def test_a_policy_network_refuses_return_heads():
    with pytest.raises(RlcliError) as caught:
        build_parts("ppo", {"name": "quantile"})
    assert mentions(caught.value.message, "`policy`", "`quantile`", "returns")
