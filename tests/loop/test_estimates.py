"""Estimates for tracers: what is sampled in them is drawn anew in each update."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.loop import make_loop
from rlcli.tracers.multi_step import lambda_return
from rlcli.types import Core, TimeStep, Tracer

BOX = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
seen: list[np.ndarray] = []  # v_t and q_tm1 of each update, `[2, T, B]`


def _constant(action: gymnasium.Space, is_random: bool = False) -> Core:
    """The observation is always 1/2; the reward is 1, or random."""

    def step(state, action, noise):
        reward = noise if is_random else jnp.float32(1)
        obs = jnp.full(1, 0.5)
        end = jnp.bool_(False)
        return state, TimeStep(obs, obs, reward, jnp.float32(1), end, {})

    return Core(
        lambda key: (jnp.zeros(1), jnp.full(1, 0.5)),
        step,
        BOX,
        action,
        draw=jax.random.normal,
    )


def choices() -> Core:
    """With Discrete actions."""
    return _constant(gymnasium.spaces.Discrete(2))


def gamble() -> Core:
    """With a single action and random rewards."""
    return _constant(gymnasium.spaces.Discrete(1), is_random=True)


def forces() -> Core:
    """With continuous actions."""
    return _constant(BOX)


def recorder() -> Tracer:
    """A λ-return that records what it bootstraps from."""
    inner = lambda_return()

    def trace(steps, estimates):
        values = jnp.stack([estimates.v_t, estimates.q_tm1])
        jax.debug.callback(lambda values: seen.append(np.array(values)), values)
        return inner.trace(steps, estimates)

    return inner._replace(trace=trace)


REPLAY = {"name": "sequences", "capacity": 64, "batch_size": 2, "length": 2}
CHOICES, FORCES = {"name": choices}, {"name": forces}
MLP = {"name": "mlp", "layers": [8]}
NOISY = {**MLP, "head": {"noisy": True}}
GAMBLE = {"name": gamble}
STATE = {**GAMBLE, "wrappers": ["expose_state"]}
OF_STATE = {**MLP, "preprocess": [{"name": "member", "of": "observation"}]}
STOCHASTIC = {
    "subset of critics": {
        "environment": CHOICES,
        "updater": {"name": "redq", "critics": 6},
    },
    "noisy networks": {"environment": CHOICES, "updater": "dqn", "network": NOISY},
    "fractions": {"environment": CHOICES, "updater": "iqn"},
    "sac": {"environment": FORCES, "updater": "sac"},
    "tqc": {"environment": FORCES, "updater": "tqc"},
    "crossq": {"environment": FORCES, "updater": "crossq"},
    "smoothing": {"environment": FORCES, "updater": "td3"},
    "cql": {"environment": FORCES, "updater": "cql"},
    "learned model": {
        "environment": GAMBLE,
        "updater": {"name": "model_learning", "stochastic": True},
    },
    "known model": {
        "environment": STATE,
        "network": OF_STATE,
        "updater": "model_known",
    },
}
EXACT = {
    "dqn": {"environment": CHOICES, "updater": "dqn"},
    "expected sarsa": {"environment": CHOICES, "updater": "expected_sarsa"},
    "discrete sac": {"environment": CHOICES, "updater": "sac"},
    "ddpg": {"environment": FORCES, "updater": "ddpg"},
    "ppo": {"environment": CHOICES, "updater": "ppo"},
}


def values_of(sections: dict, *runs: tuple[int, ...]) -> list[np.ndarray]:
    """The values in each update of runs without learning, `[U, 2, T, B]`.

    Each run is the lengths of its chunks; all have one program.
    """
    environment = sections["environment"]
    name = f"{__name__}:{environment['name'].__name__}"
    data = {
        "network": MLP,
        "replay": REPLAY,
        "optimizer": {"name": "sgd", "learning_rate": 0.0},
        "train": {"steps": 1_000, "start": 8},
        **sections,
        "tracer": {"name": f"{__name__}:{recorder.__name__}"},
        "environment": {**environment, "name": name},
    }
    if data["updater"] == "ppo":
        data |= {"replay": None, "train": {"steps": 1_000, "unroll": 4}}
    loop = make_loop(build(recipe.load_recipe(data), (3,)))
    values = []
    for chunks in runs:
        progress = loop.begin()
        seen.clear()
        for count in chunks:
            progress, _ = loop.advance(progress, count)
            jax.effects_barrier()
        values.append(np.stack(seen))
    return values


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*STOCHASTIC])
def test_sampled_estimates_differ_between_updates_and_repeat_with_the_seed(kind):
    values, again = values_of(STOCHASTIC[kind], (14,), (5, 9))
    # Models sample the values of actions. Those of others depend on the action taken.
    sampled = values[:, 1 if "model" in kind else 0]
    means = np.unique(np.round(sampled.mean(axis=(1, 2)), 5))
    assert len(means) >= 4, means
    np.testing.assert_array_equal(values, again)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*EXACT])
def test_other_estimates_are_the_same_in_all_updates(kind):
    values = values_of(EXACT[kind], (14,))[0][:, 0]
    assert len(values) >= 3
    np.testing.assert_allclose(values, values[0, 0, 0], rtol=1e-6)


@pytest.mark.slow
def test_a_policy_explores_with_other_samples_of_a_model_at_each_step():
    """The probabilities of its two actions depend on the samples."""
    data = {
        "environment": {"name": f"{__name__}:{choices.__name__}"},
        "updater": {"name": "model_learning", "stochastic": True},
        "network": MLP,
        "policy": "boltzmann",
    }
    setup = build(recipe.load_recipe(data), (3,))
    policy, progress = setup.agent.policy, make_loop(setup).begin()
    state = jax.tree.map(lambda leaf: leaf[0], (progress.agent, progress.pending.obs))
    acting, obs = setup.agent.acting(state[0]), state[1]

    @jax.jit
    @jax.vmap
    def likelihoods(key):
        inputs = acting, obs, policy.initial(1), jnp.zeros(1, bool)
        decision, _ = policy.explore(*inputs, policy.draw(key, 1))
        return decision.extras["log_prob"][0]

    found = np.round(likelihoods(jax.random.split(jax.random.key(0), 20)), 5)
    assert len({*found.tolist()}) > 2  # one for each action, and for each sample
