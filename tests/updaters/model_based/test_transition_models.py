"""Transition models against loops, Gymnasium's tables and value iteration."""

import inspect

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_trees import normal_like

from rlcli import distributions, loop, recipe, registry
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.networks.functions import Pair, separate_network
from rlcli.networks.torsos import linear, table
from rlcli.policies.discrete import boltzmann, epsilon_greedy
from rlcli.tracers.multi_step import n_step
from rlcli.training.experiment.program import Program
from rlcli.types import Clock, Transition
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.model_based.transition_models import known_model

STATES, ACTIONS, GAMMA = 5, 3, 0.9
RNG = np.random.default_rng(0)
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))
KEY = jax.random.key(0)
CHOICES = gymnasium.spaces.Discrete(STATES, start=2)
NUMBERS = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
MOVES = gymnasium.spaces.Discrete(ACTIONS, start=1)


def make_updater(
    shown, torso, optimizer=None, policy=epsilon_greedy, span=1, **options
):
    def networks(name, head, action=None):
        return separate_network(
            name, torso, head(), shown if action is None else Pair(shown, MOVES)
        )

    factory = registry.find("updater", "model_learning").factory
    optimizer = optimizer or optax.sgd(1.0)
    spaces, tracer = Spaces(shown, MOVES), n_step(n=span, gamma=GAMMA)
    parts = Parts(spaces, networks, policy, optimizer)
    offers = {"parts": parts, "tracer": tracer}
    ours = registry.call_factory(factory, offers, options)
    return ours._replace(update=jax.jit(ours.update), estimate=jax.jit(ours.estimate))


def fill_params(ours, seed=1):
    """A state with random parameters, and these parameters by function."""
    state = jax.jit(ours.init)(KEY)
    params = normal_like(state.params, seed)
    arrays = {name: each["linear"] for name, each in params.items()}
    return state._replace(params=params), arrays


def steps_of(obs, action):
    """Rows `[1, N]` of these observations and actions; the rest is zero."""
    flag = np.zeros(action.shape, bool)[None]
    zero = np.zeros(flag.shape, "f4")
    rows = Transition(obs, action, zero, zero, obs, flag, flag, {})
    return rows._replace(obs=obs[None], action=action[None], next_obs=obs[None])


def softmax(logits):
    exponent = np.exp(logits - logits.max(-1, keepdims=True))
    return exponent / exponent.sum(-1, keepdims=True)


def sigmoid(logit):
    return 1 / (1 + np.exp(-logit))


def every_pair():
    """Each state with each action, `[STATES · ACTIONS]` both, as observed."""
    state, action = (each.ravel() for each in np.mgrid[:STATES, :ACTIONS])
    return 2 + state, 1 + action


@pytest.mark.parametrize("stochastic", [False, True])
def test_action_values_average_over_all_next_states(stochastic):
    ours = make_updater(CHOICES, table(), stochastic=stochastic)
    state, arrays = fill_params(ours)
    found = np.asarray(ours.estimate(state, steps_of(*every_pair()), KEY).q_tm1)[0]
    value = arrays["value"]["w"][:, 0]
    for pair in range(STATES * ACTIONS):
        logits = arrays["transition"]["w"][pair]
        reward = arrays["reward"]["w"][pair, 0]
        going = sigmoid(arrays["continuation"]["w"][pair, 0])
        following = value[logits.argmax()]
        if stochastic:
            following = (softmax(logits) * value).sum()
        assert found[pair] == pytest.approx(
            reward + GAMMA * going * following, rel=1e-4
        )


@pytest.mark.parametrize(
    ("stochastic", "span"),
    [
        *((False, 1), (True, 3)),
        pytest.param(True, 1, marks=pytest.mark.slow),
        pytest.param(False, 3, marks=pytest.mark.slow),
    ],
)
def test_continuous_observations_are_predicted_as_changes(stochastic, span):
    ours = make_updater(NUMBERS, linear(), stochastic=stochastic, samples=7, span=span)
    state, arrays = fill_params(ours)
    obs = np.random.default_rng(2).normal(size=(ACTIONS, 2)).astype("f4")
    rows = steps_of(obs, 1 + np.arange(ACTIONS))
    found = np.asarray(ours.estimate(state, rows, KEY).q_tm1)[0]
    _, target_key = jax.random.split(KEY)  # the other one is of the policy's values
    model_key, _ = jax.random.split(target_key)  # and of the value's noise
    noise = distributions.normal((2,)).draw(model_key, 7) if stochastic else 0.0
    noise = np.asarray(noise)

    def apply(name, inputs):
        return inputs @ arrays[name]["w"] + arrays[name]["b"]

    for action in range(ACTIONS):
        pair = np.concatenate([obs[action], np.eye(ACTIONS)[action]])
        change = apply("transition", pair)
        scale = np.exp(-5 + np.log1p(np.exp(change[2:] + 5))) if stochastic else 0.0
        following = obs[action] + change[:2]
        value = apply("value", following + scale * noise).mean()
        going = sigmoid(apply("continuation", pair)[0])
        expected = apply("reward", pair)[0] + GAMMA**span * going * value
        assert found[action] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("tracer", "factor"), [({"name": "n_step", "n": 3}, 0.99**3), ("n_step", 0.99)]
)
def test_a_model_discounts_as_the_rows_of_its_tracer_do(tracer, factor, monkeypatch):
    gammas = []
    factory = registry.find("updater", "model_learning").factory
    module = inspect.getmodule(factory)
    learned_model = module.learned_model

    def recorded_model(*args, **options):
        gammas.append(options["gamma"])
        return learned_model(*args, **options)

    monkeypatch.setattr(module, "learned_model", recorded_model)
    data = probe_recipe("probe-two-steps") | {"tracer": tracer}
    build(recipe.load_recipe(data))
    assert gammas
    np.testing.assert_allclose(gammas, factor, rtol=1e-6)


def test_a_model_refuses_rows_of_whole_episodes():
    data = probe_recipe("probe-two-steps")
    data |= {"tracer": "monte_carlo", "replay": "episodes"}
    with pytest.raises(RlcliError, match="rows are whole episodes"):
        build(recipe.load_recipe(data))


@pytest.mark.slow
@pytest.mark.parametrize("policy", [epsilon_greedy, boltzmann])
def test_policies_act_on_lookahead_values_as_on_any_action_values(policy):
    ours = make_updater(CHOICES, table(), policy=policy)
    state, _ = fill_params(ours)
    obs, action = every_pair()
    q = np.asarray(ours.estimate(state, steps_of(obs, action), KEY).q_tm1[0])
    q = q.reshape(STATES, ACTIONS)
    seen, first = 2 + np.arange(STATES), np.zeros(STATES, bool)
    noise = ours.policy.draw(KEY, STATES)
    begun = ours.policy.initial(STATES)
    decision, _ = jax.jit(ours.policy.exploit)(state.params, seen, begun, first, noise)
    np.testing.assert_array_equal(decision.action, 1 + q.argmax(-1))
    best = q.max(-1, keepdims=True)
    tried, _ = jax.jit(ours.policy.explore)(state.params, seen, begun, first, noise)
    likely = softmax(q) if policy is boltzmann else 0.05 / 3 + 0.95 * (q == best)
    chosen = likely[np.arange(STATES), np.asarray(tried.action) - 1]
    np.testing.assert_allclose(np.exp(tried.extras["log_prob"]), chosen, rtol=1e-4)


def test_each_function_learns_its_own_target_from_a_row():
    ours = make_updater(NUMBERS, linear(), backup="sample", loss="mse")
    state, arrays = fill_params(ours)
    rows = random_rows()
    rows = rows._replace(discount=np.array([[0.9, 0.0]], "f4"))
    weight = np.array([[1.0, 1.0]], "f4")
    _, report = ours.update(state, rows, weight, CLOCK, KEY)

    def apply(name, inputs):
        return inputs @ arrays[name]["w"] + arrays[name]["b"]

    pair = np.concatenate([rows.obs[0], np.eye(ACTIONS)[rows.action[0] - 1]], -1)
    error = rows.next_obs[0] - rows.obs[0] - apply("transition", pair)
    nats = 0.5 * (error**2).sum(-1) + np.log(2 * np.pi)
    missed = rows.reward[0] - apply("reward", pair)[:, 0]
    likely = sigmoid(apply("continuation", pair)[:, 0])
    discount = rows.discount[0]
    crossed = -np.log([likely[0], 1 - likely[1]])  # the first went on
    goal = rows.reward[0] + discount * apply("value", rows.next_obs[0])[:, 0]
    surprise = goal - apply("value", rows.obs[0])[:, 0]
    expected = {
        "transition": nats[0] / 2,  # the second row has ended
        "reward": np.mean(0.5 * missed**2 + 0.5 * np.log(2 * np.pi)),
        "continuation": np.mean(crossed),
        "td_error": np.mean(np.abs(surprise)),
    }
    for name, number in expected.items():
        assert report.metrics[name] == pytest.approx(number, rel=1e-4), name
    loss = np.mean(surprise**2) + sum(list(expected.values())[:3])
    assert report.metrics["loss"] == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(report.priority, np.abs(surprise), rtol=1e-4)


def random_rows():
    rng = np.random.default_rng(2)
    obs, after = rng.normal(size=(2, 1, 2, 2)).astype("f4")
    flag = np.zeros((1, 2), bool)
    reward = rng.normal(size=(1, 2)).astype("f4")
    return Transition(obs, np.array([[1, 3]]), reward, reward, after, flag, flag, {})


# A stochastic environment with random termination: [state, action, one of 8 outcomes].
AFTER = RNG.integers(0, STATES, (STATES, ACTIONS, 8))
REWARD = RNG.normal(size=(STATES, ACTIONS, 8))
ENDS = RNG.random((STATES, ACTIONS, 8)) < 0.3
ENDS[..., 0] = False


def value_iteration():
    """Action values by value iteration, `[STATES, ACTIONS]`."""
    q = np.zeros((STATES, ACTIONS))
    for _ in range(400):
        best = q.max(-1)
        q = np.mean(REWARD + GAMMA * ~ENDS * best[AFTER], axis=-1)
    return q


@pytest.fixture(scope="module")
def tabular_learner():
    """The updater, and its state after many updates with every possible row."""
    state, action = (each.ravel() for each in np.mgrid[:STATES, :ACTIONS])
    every = (np.repeat(each, 8)[None] for each in (2 + state, 1 + action))
    obs, action = every
    flag = np.zeros(obs.shape, bool)
    rows = Transition(
        obs=obs,
        action=action,
        reward=REWARD.reshape(1, -1).astype("f4"),
        discount=(GAMMA * ~ENDS).reshape(1, -1).astype("f4"),
        next_obs=2 + AFTER.reshape(1, -1),
        first=flag,
        last=flag,
        extras={},
    )
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, 2_000))
    options = {"stochastic": True, "target": {"polyak": 0.2}, "loss": "mse"}
    ours = make_updater(CHOICES, table(), optimizer, **options)

    def step(state, key):
        return ours.update(state, rows, jnp.ones(obs.shape), CLOCK, key)[0], None

    keys = jax.random.split(KEY, 1_000)
    run = jax.jit(lambda: jax.lax.scan(step, ours.init(KEY), keys)[0])
    return ours, run()


def test_the_fixed_point_equals_value_iteration(tabular_learner):
    ours, state = tabular_learner
    found = ours.estimate(state, steps_of(*every_pair()), KEY)
    expected = value_iteration()
    q = np.asarray(found.q_tm1).reshape(STATES, ACTIONS)
    np.testing.assert_allclose(q, expected, atol=0.02)
    v = np.asarray(found.v_tm1).reshape(STATES, ACTIONS)[:, 0]
    np.testing.assert_allclose(v, expected.max(-1), atol=0.02)


def test_learned_transition_probabilities_are_correct_without_termination(
    tabular_learner,
):
    _, state = tabular_learner
    arrays = {name: np.asarray(e["linear"]["w"]) for name, e in state.params.items()}
    for pair, where in enumerate(np.ndindex(STATES, ACTIONS)):
        on = AFTER[where][~ENDS[where]]
        true = np.bincount(on, minlength=STATES) / len(on)
        found = softmax(arrays["transition"][pair])
        np.testing.assert_allclose(found, true, atol=0.01)
        going = sigmoid(arrays["continuation"][pair, 0])
        assert going == pytest.approx(np.mean(~ENDS[where]), abs=0.01)
        assert arrays["reward"][pair, 0] == pytest.approx(
            REWARD[where].mean(), abs=0.01
        )


def lake(slippery):
    """Gymnasium's table: transition probabilities, and the values of the best policy.

    `[16, 4, 16]`, whether the next is no end, `[16]`, and q `[16, 4]`.
    """
    world = gymnasium.make("FrozenLake-v1", is_slippery=slippery).unwrapped.P
    likely, paid, going = np.zeros((16, 4, 16)), np.zeros((16, 4)), np.ones(16)
    for state, action in np.ndindex(16, 4):
        for probability, after, reward, ended in world[state][action]:
            likely[state, action, after] += probability
            paid[state, action] += probability * reward
            going[after] = not ended
    q = np.zeros((16, 4))
    for _ in range(2_000):
        q = paid + GAMMA * likely @ (going * q.max(-1))
    return likely, going.astype(bool), q


def lake_recipe(updater, steps, **environment):
    return {
        "environment": {"name": "FrozenLake-v1", "num_envs": 64, **environment},
        "network": {
            "name": "table",
            "preprocess": [{"name": "member", "of": "observation"}],
        },
        "policy": {"name": "epsilon_greedy", "epsilon": 1.0},
        "tracer": {"name": "n_step", "gamma": GAMMA},
        "replay": {"name": "uniform", "capacity": 64_000, "batch_size": 128},
        "updater": updater,
        "optimizer": {"name": "adam", "learning_rate": {"from": 0.05, "to": 0.0}},
        "train": {"steps": steps},
    }


def learn_recipe(data, iterations):
    """Environment, agent and parameters after `iterations` iterations."""
    setup = build(recipe.load_recipe(data))
    engine = loop.make_loop(setup)
    progress, _ = engine.advance(engine.begin(), iterations)
    environment, agent = setup.environment, setup.agent
    assert int(agent.failed_at(progress.agent)[0]) == -1
    params = agent.acting(progress.agent)
    return environment, agent, jax.tree.map(lambda leaf: leaf[0], params)


@pytest.mark.slow
def test_the_model_of_a_slippery_lake_matches_gymnasium():
    data = lake_recipe({"name": "model_learning", "stochastic": True}, 100_000)
    data["network"] = "table"
    _, _, params = learn_recipe(data, iterations=1_560)
    likely, going, _ = lake(slippery=True)
    found = softmax(np.asarray(params["transition"]["linear"]["w"])).reshape(16, 4, 16)
    met = [0, 1, 2, 4, 6, 8, 9]  # by wandering about, often enough
    for state, action in [(s, a) for s in met for a in range(4)]:
        on = likely[state, action] * going
        np.testing.assert_allclose(found[state, action], on / on.sum(), atol=0.1)


def test_the_known_model_of_a_slippery_lake_matches_gymnasium():
    lake_env = registry.find("environment", "FrozenLake-v1").factory()
    rules = registry.find("wrapper", "expose_state").factory(lake_env)
    state, action = (each.ravel() for each in np.mgrid[:16, :4])
    obs = {"observation": state, "state": (state,)}
    model = known_model(rules, GAMMA, 2_000)
    after = jax.jit(lambda: model.predict({}, KEY, obs, action, None))()
    cells = np.asarray(after.next_obs["observation"])
    likely, going, _ = lake(slippery=True)
    for pair, where in enumerate(zip(state, action, strict=True)):
        if not going[where[0]]:
            continue  # no action is taken in terminal states
        found = np.bincount(cells[pair], minlength=16) / 2_000
        np.testing.assert_allclose(found, likely[where], atol=0.05)
        ends = ~going[cells[pair]]
        np.testing.assert_allclose(after.discount[pair], GAMMA * ~ends, rtol=1e-6)
        np.testing.assert_array_equal(after.reward[pair], cells[pair] == 15)
    np.testing.assert_allclose(np.sum(after.probability, axis=-1), 1, rtol=1e-4)


@pytest.mark.slow
def test_values_with_a_known_model_equal_value_iteration():
    updater = {"name": "model_known", "target": {"polyak": 0.5}}
    data = lake_recipe(updater, 30_000, wrappers=["expose_state"], slippery=False)
    _, _, params = learn_recipe(data, iterations=460)
    _, going, q = lake(slippery=False)
    found = np.asarray(params["value"]["linear"]["w"])[:, 0]
    np.testing.assert_allclose(found[going], q.max(-1)[going], atol=0.02)


VALUES = {
    "probe-two-steps": {0: (GAMMA, GAMMA), 1: (1, 1)},
    "probe-reward-depends-on-action": {0: (-1, 1)},
    "probe-truncation": {0: (1 / (1 - GAMMA), 1 / (1 - GAMMA))},
}


def probe_recipe(name, **updater):
    return {
        "environment": {"name": name, "num_envs": 16},
        "network": {"name": "mlp", "layers": [16]},
        "policy": {"name": "boltzmann", "temperature": 1.0},
        "tracer": {"name": "n_step", "gamma": GAMMA},
        "replay": {"name": "uniform", "capacity": 512, "batch_size": 64},
        "updater": {"name": "model_learning", **updater},
        "optimizer": {
            "name": "adam",
            "learning_rate": {"from": 0.03, "to": 0.0, "over": 24_000},
        },
        "train": {"steps": 1_000_000},
    }


@pytest.mark.slow
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("backup", ["best", "sample"])
@pytest.mark.parametrize("name", VALUES)
def test_a_model_of_a_probe_gives_its_values(name, backup, stochastic):
    data = probe_recipe(
        name, backup=backup, stochastic=stochastic, loss="mse", target={"polyak": 0.2}
    )
    _, agent, params = learn_recipe(data, iterations=1_500)
    expected = VALUES[name]
    likely = np.exp([log_probs(agent, params, obs) for obs in expected])
    np.testing.assert_allclose(
        likely, softmax(np.array(list(expected.values()), float)), atol=0.05
    )
    inputs = np.array(list(expected), "f4")[:, None]
    hidden = params["value"]
    for module in ("linear", "linear_1"):
        inputs = inputs @ hidden[module]["w"] + hidden[module]["b"]
        inputs = np.maximum(inputs, 0) if module == "linear" else inputs
    worth = np.max(list(expected.values()), axis=-1)
    if (name, backup) == ("probe-reward-depends-on-action", "sample"):
        worth = worth * np.tanh(1.0)  # the value of an exploring policy
    np.testing.assert_allclose(inputs[:, 0], worth, rtol=0.05, atol=0.05)


def log_probs(agent, params, obs):
    """Log-probabilities of both actions while exploring, estimated by sampling."""
    seen, many = jnp.full((4_000, 1), float(obs)), jnp.zeros(4_000, bool)
    noise, begun = agent.policy.draw(KEY, 4_000), agent.policy.initial(4_000)
    decision, _ = jax.jit(agent.policy.explore)(params, seen, begun, many, noise)
    return np.log(np.bincount(decision.action, minlength=2) / 4_000)


REFUSED = {
    "no discrete actions": ("model_learning", "Pendulum-v1", {}, "Discrete action"),
    "several members": (
        *("model_learning", {"name": "CartPole-v1", "wrappers": ["expose_state"]}, {}),
        "cannot predict observations of Dict",
    ),
    "a memory": (
        *("model_learning", "CartPole-v1"),
        {"network": {"name": "mlp", "memory": {"name": "gru", "size": 4}}},
        "a transition model does not support recurrent networks",
    ),
    "no state": (
        *("model_known", "CartPole-v1", {}),
        "which is not part of the observation",
    ),
    "another scale": (
        *("model_known", {"name": "CartPole-v1", "wrappers": ["expose_state"]}),
        {"normalize": {"observation": True}},
        "which is not available",
    ),
    "several sets of constants": (
        "model_known",
        {
            "name": "CartPole-v1",
            "num_envs": 2,
            "wrappers": ["expose_state"],
            "each": {"length": [0.5, 1.0]},
        },
        {},
        "which is not available",
    ),
    "the host": ("model_known", "gymnasium/CartPole-v1", {}, "which is not available"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_refuses(case):
    updater, environment, more, message = REFUSED[case]
    data = {"environment": environment, "updater": updater, **more}
    with pytest.raises(RlcliError, match=message):
        build(recipe.load_recipe(data))


def cart_motion(obs, action):
    """The change of a cart in a step of 0.02 s, without the effect of the pole."""
    push = jnp.where(action == 1, 10.0, -10.0) / 1.1
    speed, turning = obs[:, 1], obs[:, 3]
    return 0.02 * jnp.stack([speed, push, turning, -1.5 * push], axis=-1)


def constant_reward(obs, action):
    """The reward while the pole is upright."""
    del action
    return jnp.ones((len(obs), 1))


@pytest.mark.slow
def test_known_functions_are_forward_passes_without_parameters():
    given = {
        "transition": f"{__name__}:cart_motion",
        "reward": f"{__name__}:constant_reward",
    }
    data = {
        "environment": "CartPole-v1",
        "updater": {"name": "model_learning"},
        "policy": "boltzmann",
        "network": {"value": "linear", "continuation": "linear", **given},
        "tracer": {"name": "n_step", "gamma": GAMMA},
        "train": {"steps": 2_000},
    }
    parsed = recipe.load_recipe(data)
    setup = build(parsed)
    Program(parsed, setup).check()  # traces an update
    agent = setup.agent
    begun = jax.eval_shape(loop.make_loop(setup).begin).agent
    shapes = agent.acting(begun)
    assert shapes["transition"] == shapes["reward"] == {}
    params = jax.tree.map(lambda leaf: leaf[0], normal_like(shapes))
    obs = np.random.default_rng(2).uniform(-0.1, 0.1, (9, 4)).astype("f4")
    worth = []
    for action in (0, 1):
        after = obs + jax.jit(cart_motion)(obs, np.full(9, action))
        pair = np.concatenate([obs, np.tile(np.eye(2)[action], (9, 1))], -1)
        (value, going) = (params[name]["linear"] for name in ("value", "continuation"))
        going = sigmoid(pair @ going["w"] + going["b"])[:, 0]
        worth.append(1 + GAMMA * going * (after @ value["w"] + value["b"])[:, 0])

    @jax.jit
    def explore(params):
        noise, begun = agent.policy.draw(KEY, 9), agent.policy.initial(9)
        return agent.policy.explore(params, obs, begun, np.zeros(9, bool), noise)[0]

    decision = explore(params)
    likely = softmax(np.stack(worth, -1))[np.arange(9), np.asarray(decision.action)]
    found = np.exp(decision.extras["log_prob"])
    np.testing.assert_allclose(found, likely, rtol=1e-4)
