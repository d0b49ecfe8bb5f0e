"""Trained policies: they act as in evaluation, on single observations and batches."""

import runpy
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from odd_environments import ACTIONS
from policy_files import write_policy
from tiers import quick_first

import rlcli
from rlcli.assembly import build_environment
from rlcli.errors import RlcliError
from rlcli.evaluation import episodes_env
from rlcli.loop.episode_records import evaluation_keys, evaluation_reset_seed
from rlcli.recipe import load_recipe
from rlcli.runs.frozen import FrozenSeed
from rlcli.types import Clock, External

SMALL = {"name": "mlp", "layers": [4]}
DQN = {"environment": "CartPole-v1", "network": SMALL, "updater": "dqn"}
PENDULUM = {"name": "Pendulum-v1", "time_limit": 20}
FRAMES = [{"name": "one_hot"}, {"name": "frame_stack", "frames": 3}]
SHIFTED = gymnasium.spaces.Discrete(3, start=5)
RECIPES = {
    "normalization": {
        "environment": PENDULUM,
        "network": SMALL,
        "updater": "ppo",
        "normalize": {"observation": True, "reward": True},
    },
    "off_policy": {"environment": PENDULUM, "network": SMALL, "updater": "sac"},
    "recurrent": {
        "environment": {"name": "bsuite/MemoryChain", "memory_length": 5},
        "network": SMALL | {"memory": {"name": "gru", "size": 4}},
        "updater": "ppo",
    },
    "frame_stack": {
        "environment": {"name": "FrozenLake-v1", "time_limit": 9},
        "network": SMALL | {"preprocess": FRAMES},
        "updater": "q_learning",
    },
    "mask": {"environment": "ConnectFour-v0", "network": SMALL, "updater": "dqn"},
    "each": {
        "environment": PENDULUM | {"each": {"length": [0.5, 2.0]}, "num_envs": 2},
        "network": SMALL,
        "updater": "ppo",
    },
    "wrappers": {
        "environment": PENDULUM
        | {"wrappers": ["flatten", {"name": "discrete_actions", "bins": 5}]},
        "network": SMALL,
        "updater": "q_learning",
    },
    "minatar": {
        "environment": {"name": "MinAtar/Breakout-v1", "time_limit": 30},
        "network": SMALL | {"preprocess": [{"name": "frame_stack", "frames": 2}]},
        "updater": "dqn",
    },
    "gymnasium": DQN | {"environment": "gymnasium/CartPole-v1"},
    "gymnasium_frames": {
        "environment": {"name": "gymnasium/Pendulum-v1", "time_limit": 20},
        "network": SMALL | {"preprocess": [{"name": "frame_stack", "frames": 2}]},
        "updater": "ppo",
    },
}


def load(tmp_path, name, **changes):
    return rlcli.load(write_policy(tmp_path, RECIPES[name] | changes))


@pytest.fixture(scope="module")
def dqn(tmp_path_factory):
    return rlcli.load(write_policy(tmp_path_factory.mktemp("dqn"), DQN))


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    return load(tmp_path_factory.mktemp("recurrent"), "recurrent")


@pytest.fixture(scope="module")
def ddpg(tmp_path_factory):
    return load(tmp_path_factory.mktemp("ddpg"), "off_policy", updater="ddpg")


@pytest.fixture(scope="module")
def sac(tmp_path_factory):
    return load(tmp_path_factory.mktemp("sac"), "off_policy")


@pytest.fixture(scope="module")
def normalizing(tmp_path_factory):
    """An actor-critic of linear functions, with normalized observations."""
    folder = tmp_path_factory.mktemp("normalizing")
    return load(folder, "normalization", network="linear")


def play(policy, episodes, seed=0):
    """The returns of a Gymnasium loop, summed in float32 as an evaluation does."""
    env, returns = policy.make_env(), []
    for episode in range(episodes):
        obs, _ = env.reset(seed=None if episode else seed)
        state, total, done = None, np.float32(0), False
        while not done:
            action, state = policy.act(obs, state)
            obs, reward, terminated, truncated, _ = env.step(action)
            total, done = total + np.float32(reward), terminated or truncated
        returns.append(float(total))
    return returns


def check_episodes(policy, episodes, seed=3, rtol=None):
    (evaluated,) = rlcli.eval(policy.file, episodes=episodes, seed=seed)["seeds"]
    # A matrix product may round differently for a batch of several episodes.
    is_discrete = isinstance(policy.spaces.action, gymnasium.spaces.Discrete)
    rtol = rtol or (0 if is_discrete else 1e-5)
    returns = play(policy, episodes, seed)
    np.testing.assert_allclose(returns, evaluated["returns"], rtol)


@pytest.mark.slow
def test_a_loop_plays_several_episodes_of_an_evaluation(recurrent):
    check_episodes(recurrent, 16)


@pytest.mark.slow
def test_a_dqn_plays_several_episodes_of_an_evaluation(dqn):
    check_episodes(dqn, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_every_kind_of_recipe_plays_the_episodes_of_an_evaluation(name, tmp_path):
    episodes = 16 if name == "recurrent" else 2  # its returns are 1 or −1
    check_episodes(load(tmp_path, name), episodes)


@pytest.mark.slow
def test_a_search_plays_the_episodes_of_an_evaluation(tmp_path):
    pytest.importorskip("mctx")
    policy = load(
        tmp_path,
        "wrappers",
        updater={"name": "muzero", "size": 8},
        policy={"name": "gumbel_muzero", "simulations": 4},
    )
    # Compiled with a search, the sums of rewards differ by 2.5e-7.
    check_episodes(policy, 2, rtol=1e-6)
    obs, _ = policy.make_env().reset()
    assert policy.value(obs).shape == ()
    assert policy.distribution(obs).probabilities.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_an_evolution_strategy_acts_with_its_best_member(tmp_path):
    pytest.importorskip("evosax")
    policy = load(tmp_path, "each", updater="open_es")
    check_episodes(policy, 2)


def evaluated_vector(policy, num_envs):
    """The environments of an evaluation, and the noise of each of its steps."""
    recipe = load_recipe(policy.recipe, [f"environment.num_envs={num_envs}"])
    env = build_environment(recipe, 1)

    def draw(time):
        return env.draw(evaluation_keys(policy.seed, 0, time)[1])

    return env, draw, jax.random.key(evaluation_reset_seed(policy.seed, 0))


@pytest.mark.slow
def test_a_batch_breaks_ties_as_an_evaluation_does(tmp_path):
    data = {
        "environment": {"name": "FrozenLake-v1", "time_limit": 30},
        "network": "table",
        "updater": "q_learning",
    }
    # All action values are 0, so every action is drawn at random.
    policy = rlcli.load(write_policy(tmp_path, data, scale=0.0))
    env, draw, key = evaluated_vector(policy, 6)
    (evaluated,) = rlcli.eval(policy.file, episodes=6)["seeds"]

    @jax.jit
    def play_all(key):
        def step(carry, time):
            env_state, obs, state, first, is_running = carry
            action, state = policy.act(obs, state, first)
            env_state, timestep = env.step(env_state, action, draw(time))
            carry = env_state, timestep.obs, state, timestep.last
            return (*carry, is_running & ~timestep.last), is_running

        env_state, obs = env.reset(key)
        start = policy.initial_state((6,)), jnp.zeros(6, bool), jnp.ones(6, bool)
        _, running = jax.lax.scan(step, (env_state, obs, *start), jnp.arange(30))
        return running.sum(axis=0)

    assert np.mean(play_all(key)) == pytest.approx(evaluated["length"], rel=1e-6)


# Observations and actions


def test_results_are_of_the_kind_of_the_observation(dqn):
    obs = np.zeros(4)
    action, _ = dqn.act(obs)
    assert isinstance(action, np.int64)  # a scalar is hashable, unlike an array
    assert isinstance(dqn.value(obs), np.float32)
    action, _ = dqn.act(jnp.zeros(4))
    assert isinstance(action, jax.Array)
    assert isinstance(dqn.value(jnp.zeros(4)), jax.Array)


def test_a_batch_has_the_actions_of_its_rows(dqn):
    obs = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    action, state = dqn.act(obs)
    assert action.shape == state.first.shape == (2, 3)
    for place in np.ndindex(2, 3):
        assert action[place] == dqn.act(obs[place])[0]
    mapped = jax.jit(jax.vmap(jax.vmap(lambda row: dqn.act(row)[0])))
    np.testing.assert_array_equal(mapped(obs), action)
    np.testing.assert_array_equal(jax.jit(dqn.act)(obs)[0], action)
    empty, _ = dqn.act(obs[:, :0])
    assert empty.shape == (2, 0)


@pytest.mark.slow
def test_a_state_of_vmap_continues_as_that_of_a_batch(tmp_path):
    policy = load(tmp_path, "recurrent")
    shape = (3, 2, *policy.spaces.observation.shape)
    obs = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    batch, rows = policy.initial_state((2,)), policy.initial_state((2,))
    for now in obs:
        _, batch = policy.act(now, batch)
        _, rows = jax.vmap(policy.act)(now, rows)
    jax.tree.map(np.testing.assert_allclose, batch.memory, rows.memory)


def test_the_first_observation_of_an_episode_clears_the_memory_of_its_row(recurrent):
    policy = recurrent
    obs = np.ones((2, *policy.spaces.observation.shape), np.float32)
    _, fresh = policy.act(obs)
    _, later = policy.act(obs, fresh)
    _, mixed = policy.act(obs, fresh, first=np.array([True, False]))
    for new, old, both in zip(
        *(jax.tree.leaves(state.memory) for state in (fresh, later, mixed)),
        strict=True,
    ):
        assert np.any(new != old)
        np.testing.assert_array_equal(both[0], new[0])
        np.testing.assert_array_equal(both[1], old[1])


@pytest.mark.slow
def test_frames_are_stacked_in_the_state(tmp_path):
    policy = load(tmp_path, "frame_stack")
    _, state = policy.act(4)
    _, state = policy.act(7, state)
    (stack,) = state.frames
    np.testing.assert_array_equal(np.flatnonzero(stack) % 16, [4, 4, 7])
    _, state = policy.act(9, state, first=True)
    np.testing.assert_array_equal(np.flatnonzero(state.frames[0]) % 16, [9, 9, 9])


class Shifted(gymnasium.Env):
    """Observations and actions do not begin at 0."""

    observation_space = SHIFTED
    action_space = gymnasium.spaces.Tuple(
        [SHIFTED, gymnasium.spaces.Box(-0.1, 0.1, (2,), np.float64)]
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 5, {}

    def step(self, action):
        assert self.action_space.contains(tuple(action))
        return action[0], 1.0, False, bool(self.np_random.random() < 0.2), {}


@pytest.fixture
def shifted(tmp_path):
    gymnasium.register("Shifted-v0", Shifted)
    data = {"environment": "gymnasium/Shifted-v0", "network": SMALL, "updater": "ppo"}
    yield rlcli.load(write_policy(tmp_path, data, scale=2.0))
    del gymnasium.registry["Shifted-v0"]


@pytest.mark.slow
def test_spaces_are_those_of_the_library_and_actions_are_elements(shifted):
    assert shifted.spaces.observation == SHIFTED
    for obs in (5, np.int64(7)):
        action, _ = shifted.act(obs)
        assert shifted.spaces.action.contains(action)
    action = jax.device_get(shifted.act(jnp.array([5, 6, 7]))[0])
    assert action[0].min() >= 5
    assert np.abs(action[1]).max() <= np.float32(0.1)
    assert action[1].shape == (3, 2)

    @jax.jit
    def sample(obs):
        distribution = shifted.distribution(obs)
        action = distribution.sample(jax.random.key(0))
        return action, distribution.log_prob(action)

    (discrete, _), log_prob = jax.device_get(sample(jnp.array([5, 6])))
    assert discrete.min() >= 5
    assert np.all(np.isfinite(log_prob))
    check_episodes(shifted, 3)


# Other functions


@pytest.mark.parametrize(
    "name", quick_first(["scalar_box", *sorted(ACTIONS.keys() - {"scalar_box"})])
)
def test_actions_are_elements_as_gymnasium_has_them(name, tmp_path):
    """Without a warning, also those of an exported policy."""
    environment = {"name": "odd_environments:Host", "action": name}
    data = {"environment": environment, "network": SMALL, "updater": "ppo"}
    file = write_policy(tmp_path, data)
    policy = rlcli.load(file, trust=True)
    module = tmp_path / "exported.py"
    rlcli.export(file, format="numpy", output=module, trust=True)
    exported = runpy.run_path(str(module))
    for act in (policy.act, exported["act"]):
        action, _ = act(np.zeros(2, np.float32))
        assert policy.spaces.action.contains(action)


def test_values_are_those_of_the_network_and_of_the_greedy_action(dqn):
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    first, second = dqn.params["q"]["linear"], dqn.params["q"]["linear_1"]
    hidden = np.maximum(obs @ first["w"] + first["b"], 0)
    q = dqn.action_values(obs)
    np.testing.assert_allclose(q, hidden @ second["w"] + second["b"], rtol=1e-4)
    np.testing.assert_array_equal(dqn.value(obs), q.max(-1))
    np.testing.assert_array_equal(dqn.act(obs)[0], q.argmax(-1))


@pytest.mark.slow
def test_a_distribution_has_the_probabilities_of_the_policy(tmp_path):
    policy = {"name": "epsilon_greedy", "epsilon": 0.2}
    policy = rlcli.load(write_policy(tmp_path, DQN | {"policy": policy}))
    obs = np.ones(4, np.float32)
    best = policy.act(obs)[0]
    distribution = policy.distribution(obs)
    assert distribution.probabilities[best] == pytest.approx(0.9)
    assert distribution.log_prob(1 - best) == pytest.approx(np.log(0.1), abs=1e-5)
    assert distribution.mode() == best

    @jax.jit
    def act(obs):
        keys = jax.random.split(jax.random.key(0), 500)
        explore = jax.vmap(lambda key: policy.explore(obs, None, key)[0])
        return explore(keys), jax.vmap(distribution.sample)(keys)

    for actions in jax.device_get(act(obs)):
        assert np.mean(actions == best) == pytest.approx(0.9, abs=0.05)


def test_the_value_of_an_actor_critic_is_that_of_normalized_observations(normalizing):
    policy = normalizing
    obs = np.array([0.5, -0.2, 3.0], np.float32)
    ((mean,), (variance,)) = policy.params.observation[1:]
    scaled = np.clip((obs - mean) / np.sqrt(variance + 1e-8), -10, 10)
    (layer,) = policy.params.policy["value"].values()
    expected = scaled @ layer["w"][:, 0] + layer["b"][0]
    assert policy.value(obs) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.slow
def test_a_recurrent_policy_has_a_value_and_a_distribution(tmp_path):
    policy = load(tmp_path, "recurrent", normalize={"observation": True})
    obs = np.ones((2, *policy.spaces.observation.shape), np.float32)
    _, state = policy.act(obs)
    assert policy.value(obs).shape == policy.value(obs, state).shape == (2,)
    assert np.any(policy.value(obs) != policy.value(obs, state))
    assert jax.vmap(policy.distribution)(obs).entropy().shape == (2,)


@pytest.mark.parametrize("updater", quick_first(["pqn", "model_learning", "r2d2"]))
def test_other_algorithms_with_action_values_have_them(updater, tmp_path):
    if updater == "r2d2":
        memory = {"memory": {"name": "gru", "size": 4}}
        data = {
            "updater": "q_learning",
            "network": SMALL | memory,
            "replay": {"name": "sequences", "length": 4, "batch_size": 2},
        }
    else:
        data = {"updater": updater}
    policy = rlcli.load(write_policy(tmp_path, DQN | data))
    assert policy.action_values(np.zeros((3, 4))).shape == (3, 2)


def test_td_0_has_the_value_that_it_learns(tmp_path):
    data = DQN | {"updater": "simple_td", "network": "linear"}
    policy = rlcli.load(write_policy(tmp_path, data))
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    (layer,) = policy.params["value"].values()
    expected = (obs @ layer["w"] + layer["b"])[:, 0]
    np.testing.assert_allclose(policy.value(obs), expected, rtol=1e-4, atol=1e-6)
    assert policy.value(obs[0]).shape == ()


@pytest.mark.slow
def test_td_0_learns_the_discounted_returns_of_random_actions(tmp_path):
    """On Gymnasium's CartPole, which the recipe does not use."""
    rlcli.train("td_0_cartpole", run=tmp_path / "run", seeds=1)
    policy, gamma = rlcli.load(tmp_path / "run"), 0.9
    env, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(0)
    observations, returns = [], []
    for episode in range(500):
        obs, _ = env.reset(seed=None if episode else 0)
        done, begin = False, len(observations)
        while not done:
            observations.append(obs)
            obs, _, terminated, truncated, _ = env.step(int(rng.integers(2)))
            done = terminated or truncated
        remaining = np.arange(len(observations) - begin, 0, -1)
        returns += [*(1 - gamma**remaining) / (1 - gamma)]
    values = policy.value(np.array(observations))
    np.testing.assert_allclose(values.mean(), np.mean(returns), rtol=0.02)
    assert np.corrcoef(values, returns)[0, 1] > 0.85


@pytest.mark.parametrize("updater", quick_first(["ddpg", "sac"]))
@pytest.mark.parametrize("function", ["value", "action_values"])
def test_a_policy_without_values_says_so(function, updater, request):
    policy = request.getfixturevalue(updater)
    with pytest.raises(RlcliError, match=rf"`{updater}` has no (action )?value"):
        getattr(policy, function)(np.zeros(3))


def test_deterministic_policies_have_no_distribution(ddpg):
    with pytest.raises(RlcliError, match="has no distribution"):
        ddpg.distribution(np.zeros(3))


def test_only_discrete_actions_have_a_table_of_probabilities(normalizing):
    distribution = normalizing.distribution(np.zeros(3))
    with pytest.raises(RlcliError, match="no table of probabilities"):
        _ = distribution.probabilities


def test_jax_compiles_a_function_of_distributions_once(normalizing):
    one, other = (normalizing.distribution(np.full(3, x)) for x in (0, 1))
    entropy = jax.jit(lambda distribution: distribution.entropy())
    entropy(one), entropy(other)
    assert entropy._cache_size() == 1


# The environment


@pytest.mark.parametrize("name", quick_first(["CartPole-v1", "gymnasium/CartPole-v1"]))
def test_the_environment_satisfies_gymnasiums_checker(name, tmp_path):
    env = rlcli.load(write_policy(tmp_path, DQN | {"environment": name})).make_env()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(unwrapped version|observation space m).*")
        check_env(env, skip_render_check=True)
    assert np.all(env.spec.make().reset(seed=1)[0] == env.reset(seed=1)[0])
    again = [env.reset(seed=1)[0] for _ in range(2)]
    np.testing.assert_array_equal(*again)
    assert np.any(env.reset()[0] != again[0])


def test_a_library_without_single_environments_is_one_clear_error(dqn, monkeypatch):
    spaces = External(*dqn.spaces)
    vector = rlcli.make("CartPole-v1", num_envs=1)._replace(external=spaces)
    monkeypatch.setattr(episodes_env, "build_environment", lambda *_, **__: vector)
    recipe = load_recipe(DQN | {"environment": "gymnasium/CartPole-v1"})
    with pytest.raises(RlcliError, match="has no single environment"):
        episodes_env.make_episodes_env(recipe, Clock.zero(), 0)


def test_the_environment_renders(dqn):
    env = dqn.make_env()
    env.reset()
    assert env.render().dtype == np.uint8


# Loading


def test_it_knows_what_it_is(dqn):
    assert repr(dqn) == ("TrainedPolicy(`dqn` in `CartPole-v1`, seed 0, 100 steps)")
    assert load_recipe(dqn.recipe).updater.name == "dqn"
    assert set(dqn.params) == {"q"}
    assert dqn.steps == 100
    assert dqn.spaces.action.n == 2


def test_a_seed_is_named_as_in_metrics_and_the_first_is_the_default(tmp_path):
    file = write_policy(tmp_path, DQN, seeds=(5, 6))
    assert rlcli.load(file).seed == 5
    first, second = (rlcli.load(file, seed=seed).params for seed in (5, 6))
    leaf, other = (jax.tree.leaves(params)[-1] for params in (first, second))
    assert leaf.shape == other.shape
    assert np.any(leaf != other)
    with pytest.raises(RlcliError) as caught:
        rlcli.load(file, seed=0)
    assert "no policy of seed 0" in caught.value.message
    assert "`5`, `6`" in caught.value.hint


def test_a_frozen_seed_is_a_warning(tmp_path, capsys):
    rlcli.load(
        write_policy(tmp_path, DQN, frozen={0: FrozenSeed(1_234, "loss is NaN")})
    )
    assert "warning: seed 0 is frozen" in capsys.readouterr().err


@pytest.mark.slow
def test_code_of_a_file_runs_only_if_it_is_trusted(
    tmp_path, monkeypatch, fresh_imports
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import haiku as hk\n\ndef forward(obs):\n    return hk.Linear(2)(obs)\n"
    )
    file = write_policy(tmp_path, DQN | {"network": "mine:forward"})
    with pytest.raises(RlcliError, match="mine:forward"):
        rlcli.load(file)
    assert rlcli.load(file, trust=True).act(np.zeros(4))[0] in (0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3),), "got shape \\(3,\\)"),
        ((np.array(["a"] * 4),), "got an array of <U1"),
        ((np.zeros((2, 4)), "state"), "observation has batch shape \\(2,\\)"),
        ((np.zeros(4), None, np.zeros(3, bool)), "`first` has shape \\(3,\\)"),
    ],
)
def test_inputs_of_another_shape_are_one_clear_error(arguments, message, dqn):
    arguments = [
        dqn.initial_state() if isinstance(each, str) else each for each in arguments
    ]
    with pytest.raises(RlcliError, match=message):
        dqn.act(*arguments)


def test_members_of_an_observation_are_checked(tmp_path):
    policy = load(tmp_path, "mask")
    policy.spaces.observation.seed(0)
    obs = policy.spaces.observation.sample()
    with pytest.raises(RlcliError, match="expected an element of Dict"):
        policy.act(obs["action_mask"])
    with pytest.raises(RlcliError, match="different batch shapes"):
        policy.act(obs | {"action_mask": obs["action_mask"][None]})
