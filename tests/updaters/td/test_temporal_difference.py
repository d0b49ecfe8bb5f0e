"""What all rules share: noise, drawing, spaces of actions, every pair with a head."""

import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlcli import recipe, registry, spaces
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.types import Clock, Transition
from rlcli.updaters import Spaces

KEY = jax.random.key(0)
CLOCK = Clock.zero()
COUNTED = (
    *("q_learning", "double_q_learning", "clipped_double_q_learning"),
    *("soft_q_learning", "soft_clipped_double_q_learning", "munchausen"),
    "expected_sarsa",
)
RULES = ("sarsa", *COUNTED)
HEADS = {
    "scalar": {},
    "categorical": {"atoms": 5},
    "quantile": {"quantiles": 5},
    "implicit_quantile": {"samples": 5, "target_samples": 4, "policy_samples": 3},
}


def built(updater, head, environment="CartPole-v1", **more):
    data = {
        "environment": environment,
        "network": {"name": "mlp", "layers": [8], "head": head},
        "updater": updater,
        "train": {"steps": 1_000},
        **more,
    }
    parsed = recipe.load_recipe(data)
    assert recipe.load_recipe(recipe.resolve(parsed)) == parsed
    environment, agent = build(parsed).parts(Clock.zero())
    return environment, agent


def unroll(environment, steps=3):
    """Rows `[T, 1]` of zeros, but for rewards."""

    def row(space):
        return jnp.zeros((steps, 1, *space.shape), spaces.dtype(space))

    flag, one = jnp.zeros((steps, 1), bool), jnp.ones((steps, 1))
    obs, action = row(environment.observation), row(environment.action)
    return Transition(obs, action, one, one, obs, flag, flag, {})


def shapes(environment, agent):
    """Traces the life of an agent: it begins, acts, and learns from three rows."""

    def run(key):
        rows = unroll(environment)
        before = agent.init(key, rows)
        after, metrics = agent.learn(before, rows, CLOCK, key)
        asked = (rows.obs[0], agent.policy.initial(1), rows.first[0])
        noise = agent.policy.draw(key, 1)
        for act in (agent.policy.explore, agent.policy.exploit):
            decision, _ = act(agent.acting(after), *asked, noise)
            assert decision.action.shape == rows.action.shape[1:]
            assert decision.extras["log_prob"].shape == (1,)
        return before, after, metrics

    before, after, metrics = jax.eval_shape(run, KEY)
    assert jax.tree.map(str, before) == jax.tree.map(str, after)
    assert {"loss", "td_error", "q"} < set(metrics)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", RULES)
def test_every_rule_goes_with_every_head_of_one_action_and_of_all(name, head):
    options = {"name": head, **HEADS[head], "noisy": True}
    shapes(*built({"name": name, "q": "all"}, {**options, "dueling": True}))
    shapes(*built({"name": name, "q": "one", "transform": "log"}, options))


@pytest.mark.parametrize("head", HEADS)
def test_a_value_of_states_goes_with_every_head(head):
    shapes(*built("simple_td", {"name": head, **HEADS[head]}))


@pytest.mark.parametrize("head", HEADS)
def test_sarsa_of_one_action_learns_in_a_box(head):
    box = "probe-continuous-action"
    options = {"name": head, **HEADS[head]}
    sarsa = {"name": "sarsa", "q": "one", "critics": 2}
    shapes(*built(sarsa, options, box, policy="random"))
    shapes(*built("simple_td", options, box))


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {"q": q}) for name, q in itertools.product(COUNTED, ["all", "one"])]
    + [("sarsa", {"q": "all"})],
)
def test_a_rule_that_counts_actions_refuses_a_box_by_name(name, options):
    factory = registry.find("updater", name).factory
    box = gymnasium.spaces.Box(-1, 1, (2,))
    with pytest.raises(
        RlcliError, match=f"updater `{name}` needs a Discrete"
    ) as caught:
        both = Spaces(gymnasium.spaces.Discrete(2), box)
        factory(both, None, None, optax.sgd(1.0), **options)
    assert "Box" in caught.value.message
    assert "use `ppo` for a Box" in caught.value.hint


def test_a_function_of_the_pair_is_the_same_learner_as_one_of_all_actions(tabular):
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(2, 6, 4)).astype("f4")
    for name in ("double_q_learning", "munchausen"):
        found = []
        for q, shape in [("all", (2, 6, 4)), ("one", (2, 24, 1))]:
            ours = tabular(name, start=3, q=q, target={"every": 9})
            new, report = ours.updated(ours.rows(), *tables.reshape(shape))
            found.append((np.asarray(new).ravel(), report.priority))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_noise_is_for_learning_and_exploring_and_not_for_exploiting():
    environment, agent = built(
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
        asked = (params, obs, agent.policy.initial(64), begin, noise)
        return [
            act(*asked)[0].action
            for act in (agent.policy.explore, agent.policy.exploit)
        ]

    explored, exploited = zip(
        *map(actions, jax.random.split(jax.random.key(1), 20)), strict=True
    )
    assert len(np.unique(exploited, axis=0)) == 1
    assert len(np.unique(explored, axis=0)) > 1


def test_a_policy_draws_what_it_would_draw_without_a_network_that_does():
    _, agent = built("q_learning", {}, policy={"name": "epsilon_greedy"})
    drawn, ours = agent.policy.draw(KEY, 5)
    uniform = jax.random.uniform(KEY, (5, 3))
    np.testing.assert_array_equal(drawn[0], uniform[:, 0])
    np.testing.assert_array_equal(drawn[1], uniform[:, 1:])
    first = jax.random.bits(KEY, (100_000,))
    assert not np.isin(jax.random.key_data(ours), first).all()


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
def test_an_update_depends_on_its_key_only_where_something_is_drawn(
    name, head, draws, tabular
):
    ours = tabular(name, head, target={"every": 9})
    state = jax.jit(ours.whole.init)(KEY)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), state.params
    )
    ones = np.ones((3, 5), "f4")
    losses = [
        ours.update(params, params, ours.rows(), ones, key)[1].priority.tolist()
        for key in jax.random.split(KEY, 2)
    ]
    assert (losses[0] != losses[1]) == draws


def test_acting_needs_the_parameters_alone(tabular):
    ours = tabular("double_q_learning").whole
    state = jax.eval_shape(ours.init, KEY)
    assert ours.acting(state) is state.params


def test_targets_follow_by_default_where_the_rule_has_a_use_for_them():
    following = {
        name
        for name in RULES
        if registry.options(registry.find("updater", name).factory)["target"].default
    }
    assert following == {
        *("double_q_learning", "clipped_double_q_learning", "munchausen"),
        "soft_clipped_double_q_learning",
    }


def test_the_options_of_a_rule_are_those_of_all_and_its_own():
    def options(name):
        known = registry.options(registry.find("updater", name).factory)
        return {key: each.default for key, each in known.items()}

    common = {"q": "all", "critics": 1, "target": None, "loss": "huber"}
    common["transform"] = None
    assert options("q_learning") == options("expected_sarsa") == common
    assert options("soft_q_learning") == {**common, "temperature": 1.0}
    assert options("clipped_double_q_learning")["critics"] == 2
    own = {"temperature": 0.03, "alpha": 0.9, "clip": -1.0}
    assert options("munchausen").items() >= own.items()


def test_a_head_that_predicts_no_returns_has_no_name():
    with pytest.raises(RlcliError) as caught:
        built("ppo", {"name": "quantile"})
    assert caught.value.message == (
        "network `policy` has no head `quantile`: it predicts no returns"
    )
