"""Masks: what is not allowed is never done, and nothing is learned of it."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import rlcli
from rlcli import loop, registry
from rlcli.assembly import build
from rlcli.assembly.preprocessing import prepare_torso
from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.networks import heads
from rlcli.networks.functions import separate_network
from rlcli.networks.inputs import Pair
from rlcli.networks.masking import mask_network
from rlcli.networks.torsos import linear, mlp
from rlcli.policies import ValuesOffer
from rlcli.policies.discrete import epsilon_greedy
from rlcli.policies.sampled import random
from rlcli.recipe import load_recipe
from rlcli.types import Core, Network, TimeStep

ACTIONS, WORST = 4, -100.0
CHOICE = spaces.Discrete(ACTIONS, start=1)
PLACE = spaces.Box(-1.0, 1.0, (2,), np.float32)
SEEN = spaces.Dict({action_masks.MASK: spaces.MultiBinary(ACTIONS), "place": PLACE})
STEPS = 3


def guarded_env(*, forbidden: float = WORST) -> Core:
    """Pays the number of the action, but for those that are forbidden just now.

    So the best return of an episode is the sum of the largest that were allowed.
    """

    def shown(key):
        """Any action with chance 1/2, and one for sure."""
        bits, sure = jax.random.split(key)
        mask = jax.random.bernoulli(bits, 0.5, (ACTIONS,))
        mask = mask.at[jax.random.randint(sure, (), 0, ACTIONS)].set(True)
        return {action_masks.MASK: mask.astype(jnp.int8), "place": jnp.ones(2)}

    def reset(key):
        obs = shown(key)
        return (obs[action_masks.MASK], jnp.int32(0)), obs

    def step(state, action, key):
        mask, time = state
        reward = jnp.where(mask[action - 1] == 1, action * 1.0, forbidden)
        obs, over = shown(key), time + 1 == STEPS
        answer = TimeStep(obs, obs, reward, 1.0 - over, over, {})
        return (obs[action_masks.MASK], time + 1), answer

    return Core(reset, step, SEEN, CHOICE, lambda state: None)


def bare_env() -> Core:
    """The same, but shows the mask alone."""
    core = guarded_env()

    def bare(obs):
        return {action_masks.MASK: obs[action_masks.MASK]}

    def reset(key):
        state, obs = core.reset(key)
        return state, bare(obs)

    def step(state, action, key):
        state, answer = core.step(state, action, key)
        return state, answer._replace(obs=bare(answer.obs), next_obs=bare(answer.obs))

    space = spaces.Dict({action_masks.MASK: SEEN[action_masks.MASK]})
    return Core(reset, step, space, CHOICE)


@pytest.fixture(scope="module", autouse=True)
def registered_names():
    """Their names, for recipes, until the tests here are over."""
    environments = {"guarded": guarded_env, "bare": bare_env}
    for name, factory in environments.items():
        registry.register("environment", name)(factory)
    yield
    for name in environments:
        del registry.parts._BUILT_IN["environment", name]


@pytest.mark.parametrize(
    ("updater", "wrappers"),
    [
        pytest.param(updater, wrappers, marks=() if i == j else pytest.mark.slow)
        for i, updater in enumerate(["dqn", "ppo", "sac"])
        for j, wrappers in enumerate([[], ["flatten"], ["frame_stack", "previous"]])
    ],
)
def test_a_network_reads_nothing_of_a_mask_alone(updater, wrappers):
    environment = {"name": "bare", "wrappers": wrappers}
    rlcli.check({"environment": environment, "updater": updater})


class Guarded(gymnasium.Env):
    """The same in Gymnasium, where the first action is 0."""

    observation_space = SEEN
    action_space = spaces.Discrete(ACTIONS)

    def _shown(self):
        mask = self.np_random.integers(0, 2, ACTIONS).astype(np.int8)
        mask[self.np_random.integers(ACTIONS)] = 1
        self.mask = mask
        return {action_masks.MASK: mask, "place": np.ones(2, np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._shown(), {}

    def step(self, action):
        reward = float(action + 1) if self.mask[action] else WORST
        self.time += 1
        return self._shown(), reward, self.time == STEPS, False, {}


gymnasium.register("Guarded-v0", entry_point=Guarded)


def obs(shape=(3, 5), seed=0):
    rng = np.random.default_rng(seed)
    mask = rng.integers(0, 2, (*shape, ACTIONS)).astype(np.int8)
    mask[..., 0] = 1
    place = rng.normal(size=(*shape, 2)).astype("f4")
    return {action_masks.MASK: mask, "place": place}


def network(head, space=SEEN, torso=None):
    """A network that obeys, the same without a mask, and parameters of both."""
    torso = prepare_torso(torso or linear(), [])
    plain = separate_network("q", torso, head, space)
    shapes = jax.eval_shape(plain.init, jax.random.key(0))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda s: rng.normal(size=s.shape).astype("f4"), shapes)
    return mask_network(plain, head, space), plain, params


def outputs(networks, params, inputs, read=lambda output: output):
    """What each of the networks says: one program for all."""

    @jax.jit
    def each(params, inputs):
        found = (net.apply(params, None, inputs, (), None)[0] for net in networks)
        return [read(output) for output in found]

    return jax.device_get(each(params, inputs))


def worth(networks, params, inputs):
    """What each of the networks says that actions are worth on average."""
    return outputs(networks, params, inputs, lambda output: output.particles().mean())


def test_what_is_not_allowed_is_worth_next_to_nothing_and_the_rest_what_it_was():
    obeys, plain, params = network(heads.action_values_head(ACTIONS))
    seen = obs()
    found, expected = outputs((obeys, plain), params, seen)
    mask = seen[action_masks.MASK] == 1
    np.testing.assert_array_equal(found[mask], expected[mask])
    assert (found[~mask] == action_masks.FORBIDDEN_VALUE).all()
    assert (np.asarray(action_masks.is_allowed(found)) == mask).all()


def test_networks_with_running_statistics_obey_in_losses():
    torso = mlp(layers=[3], batch_norm=True)
    obeys, plain, params = network(heads.action_values_head(ACTIONS), torso=torso)
    assert obeys.learn is not None and plain.learn is not None
    seen = obs()

    @jax.jit
    def learn(params, seen):
        return [each(params, None, seen, (), None) for each in learns]

    learns = obeys.learn, plain.learn
    both = jax.device_get(learn(params, seen))
    (found, statistics), (expected, plain_statistics) = both
    mask = seen[action_masks.MASK] == 1
    np.testing.assert_array_equal(found[mask], expected[mask])
    assert (found[~mask] == action_masks.FORBIDDEN_VALUE).all()
    jax.tree.map(np.testing.assert_array_equal, statistics, plain_statistics)


def test_no_network_sees_the_mask():
    _, plain, params = network(heads.action_values_head(ACTIONS))
    seen = obs()
    assert params["q"]["linear"]["w"].shape == (2, ACTIONS)
    other = {**seen, action_masks.MASK: 1 - seen[action_masks.MASK]}
    found = [outputs([plain], params, each) for each in (seen, other)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", registry.names("head"))
def test_every_head_obeys_of_all_actions_and_of_one(name):
    """And the value of a state has no action that might be forbidden."""
    seen = obs()
    mask = seen[action_masks.MASK] == 1
    obeys, plain, params = network(heads.return_head((ACTIONS,), "act", name=name))
    found, free = worth((obeys, plain), params, seen)
    np.testing.assert_array_equal(found[mask], free[mask])
    np.testing.assert_allclose(found[~mask], action_masks.FORBIDDEN_VALUE, rtol=1e-5)
    one = heads.return_head((), "act", name=name)
    obeys, plain, params = network(one, Pair(SEEN, CHOICE))
    action = np.random.default_rng(2).integers(1, 1 + ACTIONS, (3, 5))
    found, free = worth((obeys, plain), params, (seen, action))
    taken = np.take_along_axis(mask, action[..., None] - 1, axis=-1)[..., 0]
    np.testing.assert_array_equal(found[taken], free[taken])
    np.testing.assert_allclose(found[~taken], action_masks.FORBIDDEN_VALUE, rtol=1e-5)
    obeys, plain, _ = network(one)
    assert obeys is plain


def test_where_nothing_is_allowed_the_mask_says_nothing():
    mask = np.zeros((2, ACTIONS), np.int8)
    mask[1, 2] = 1
    found = action_masks.allowed_actions({action_masks.MASK: mask})
    np.testing.assert_array_equal(found, [[True] * 4, [False, False, True, False]])


def test_exploring_at_random_is_even_among_what_is_allowed():
    mask = np.tile(np.int8([1, 0, 1, 1]), (20_000, 1))
    seen = {action_masks.MASK: mask, "place": np.zeros((20_000, 2), "f4")}
    values = np.where(mask, np.float32([0, 9, 1, 0]), action_masks.FORBIDDEN_VALUE)

    def apply(params, key, obs, carry, first):
        return params[None], carry

    told = ValuesOffer(Network(lambda key: {}, apply, lambda batch: ()))
    likely = {
        "random": np.array([1, 0, 1, 1]) / 3,
        "greedy": 0.3 * np.array([1, 0, 1, 1]) / 3 + 0.7 * np.array([0, 0, 1, 0]),
    }
    made = {
        "random": random(CHOICE, SEEN),
        "greedy": epsilon_greedy(told, CHOICE, epsilon=0.3),
    }

    @functools.partial(jax.jit, static_argnums=0)
    def explore(policy, values, seen):
        noise, state = policy.draw(jax.random.key(0), 20_000), policy.initial(20_000)
        first = jnp.zeros(20_000, bool)
        return policy.explore(values, seen, state, first, noise)[0]

    for name, policy in made.items():
        decision = jax.device_get(explore(policy, values, seen))
        share = np.bincount(decision.action - 1, minlength=ACTIONS) / 20_000
        np.testing.assert_allclose(share, likely[name], atol=0.02)
        assert share[1] == 0
        expected = likely[name][decision.action - 1]
        np.testing.assert_allclose(
            np.exp(decision.extras["log_prob"]), expected, rtol=1e-5
        )


def test_a_mask_that_does_not_fit_is_refused():
    action_masks.check_mask(SEEN, CHOICE)
    with pytest.raises(RlcliError, match="have an `action_mask`"):
        action_masks.check_mask(SEEN, spaces.Discrete(5))
    with pytest.raises(RlcliError, match="have an `action_mask`"):
        action_masks.check_mask(SEEN, PLACE)


REPLAY = {"name": "uniform", "capacity": 2_000, "batch_size": 32}
KINDS = {
    "double": {
        "updater": {"name": "double_q_learning", "critics": 2},
        "network": {"name": "linear", "head": {"name": "quantile", "quantiles": 5}},
        "replay": REPLAY,
        "train": {"start": 100, "warmup": "random"},
    },
    "a2c": {"updater": "a2c", "network": "linear", "train": {"unroll": 8}},
}
MORE = {
    "munchausen": {
        "updater": {"name": "munchausen", "q": "one"},
        "policy": "boltzmann",
        "network": {"name": "mlp", "layers": [8], "head": "categorical"},
        "replay": REPLAY,
    },
    "expected": {"updater": "expected_sarsa", "network": "linear"},
    "sarsa": {"updater": {"name": "sarsa", "q": "one"}, "network": "linear"},
    "ppo": {"updater": "ppo", "network": "linear", "train": {"unroll": 8}},
    "pqn": {"updater": "pqn", "network": "linear", "train": {"unroll": 8}},
    "soft_pg": {"updater": "soft_pg", "network": "linear", "replay": REPLAY},
    "model_known": {
        # It knows what forbidden actions would pay, and does none for that.
        "environment": {"forbidden": 100.0, "wrappers": ["expose_state"]},
        "updater": {"name": "model_known", "samples": 1},
        "network": {
            "name": "linear",
            "preprocess": [{"name": "member", "of": "observation"}],
        },
    },
}


def recipe(kind, environment):
    train = {**kind.get("train", {}), "steps": 2_000, "evaluate": {"episodes": 25}}
    rate = {"name": "adam", "learning_rate": 0.02}
    shown = {"name": environment, "num_envs": 4, **kind.get("environment", {})}
    return {**kind, "environment": shown, "optimizer": rate, "train": train}


def plays_by_the_rules(kind):
    """Trains, and looks at every step; then at what evaluation earns."""
    setup = build(load_recipe(recipe(kind, "guarded")))
    engine = loop.make_loop(setup)
    progress = engine.begin()
    taken = []
    for _ in range(2_000 // setup.steps_per_iteration // 5):
        progress, log = engine.advance(progress, 5)
        played = progress.unroll if setup.unroll > 1 else progress.pending
        played = jax.device_get(played)
        mask = played.obs[action_masks.MASK]
        index = np.asarray(played.action, int)[..., None]
        taken.append(np.take_along_axis(mask, index, axis=-1))
    assert np.concatenate(taken, axis=1).all()
    assert all(np.isfinite(each).all() for each in log.metrics.values())
    agent = setup.agent
    acting = jax.tree.map(lambda leaf: leaf[0], agent.acting(progress.agent))
    mask = obs((400,))[action_masks.MASK]
    seen = {"place": np.ones((400, 2), "f4")}
    if "environment" in kind:
        seen = {"observation": seen, "state": (mask, np.zeros(400, np.int32))}
    seen[action_masks.MASK] = mask
    state, first = agent.policy.initial(400), np.ones(400, bool)
    noise = agent.policy.draw(jax.random.key(0), 400)
    decision, _ = jax.jit(agent.policy.exploit)(acting, seen, state, first, noise)
    return np.asarray(decision.action), mask


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "a2c",
        "double",
    ],
)
def test_what_is_not_allowed_is_never_done(kind):
    """And of what is allowed the best is learned to be done: the last."""
    action, mask = plays_by_the_rules(KINDS[kind])
    best = ACTIONS - 1 - np.argmax(mask[:, ::-1], axis=-1)
    assert mask[np.arange(400), action].all()
    assert np.mean(action == best) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("kind", MORE.values(), ids=MORE)
def test_no_updater_does_what_is_not_allowed(kind):
    action, mask = plays_by_the_rules(kind)
    best = ACTIONS - 1 - np.argmax(mask[:, ::-1], axis=-1)
    assert mask[np.arange(400), action].all()
    assert np.mean(action == best) > 0.8


@pytest.mark.slow
def test_no_member_of_an_evolution_does_what_is_not_allowed():
    """And those that do the best of what is allowed have the children."""
    pytest.importorskip("evosax")
    shown = {"name": "guarded", "num_envs": 32}
    data = {
        "environment": shown,
        "network": "linear",
        "updater": {"name": "open_es", "deviation": 0.5},
        "optimizer": {"name": "sgd", "learning_rate": 0.2},
        "train": {"steps": 32 * 9 * 100, "unroll": 9},
    }
    engine = loop.make_loop(build(load_recipe(data)))
    progress, fitness = engine.begin(), []
    for _ in range(100):
        progress, log = engine.advance(progress, 1)
        unroll = jax.device_get(progress.unroll)
        index = np.asarray(unroll.action, int)[..., None]  # agents count from 0
        assert np.take_along_axis(unroll.obs[action_masks.MASK], index, axis=-1).all()
        fitness.append(float(log.metrics["fitness"][0, 0]))
    assert np.mean(fitness[-10:]) > np.mean(fitness[:10]) + 0.5


@pytest.mark.slow
def test_gymnasiums_masks_are_obeyed_in_training_and_evaluation(tmp_path):
    run = tmp_path / "run"
    asked = recipe(KINDS["a2c"], "gymnasium/Guarded-v0")
    asked["train"] = {**asked["train"], "steps": 320, "log": {"every": 32}}
    rlcli.train(asked, quiet=True, run=run)
    rows = [row["G"] for row in rlcli.runs.metrics.read_metrics(run) if "G" in row]
    assert min(rows) > 0
    assert rlcli.eval(run, episodes=25)["seeds"][0]["min"] > 0
