"""Soft actor-critics over Discrete actions whose functions are tables."""

import gymnasium
import jax
import numpy as np
import optax
import pytest

from rlcli import registry
from rlcli.networks.functions import separate_network
from rlcli.networks.torsos import table
from rlcli.policies.sampled import sampled
from rlcli.types import Clock, Transition
from rlcli.updaters import Parts, Spaces

STATES, ACTIONS, SHAPE = 5, 3, (2, 3)
TABLE = table()
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))


class SoftTables:
    """An updater with random tables: critics and targets `[C, S, A, K]`, logits."""

    tau = 0.3

    def __init__(self, factory, critics, head=None, size=1, torso=TABLE, **options):
        def networks(name, head_factory, action=None, copies=None):
            made = head_factory(**(head or {}) if name == "critic" else {})
            space = gymnasium.spaces.Discrete(STATES)
            return separate_network(name, torso, made, space, copies)

        spaces = Spaces(*map(gymnasium.spaces.Discrete, (STATES, ACTIONS)))
        options = {"temperature": self.tau, **options}
        policies = lambda distribution, **_: sampled(distribution)  # noqa: E731
        offers = {"parts": Parts(spaces, networks, policies, optax.sgd(1.0))}
        options["critics"] = critics
        self.updater = registry.call_factory(factory, offers, options)
        rng = np.random.default_rng(0)
        shape = critics, STATES, ACTIONS, size
        self.critics, self.targets = rng.normal(size=(2, *shape))
        self.logits = rng.normal(size=(STATES, ACTIONS))
        obs, next_obs = rng.integers(0, STATES, (2, *SHAPE))
        self.rows = Transition(
            obs=obs,
            action=rng.integers(0, ACTIONS, SHAPE),
            reward=rng.normal(size=SHAPE).astype("f4"),
            discount=rng.choice([0.0, 0.9], SHAPE).astype("f4"),
            next_obs=next_obs,
            first=np.zeros(SHAPE, bool),
            last=np.zeros(SHAPE, bool),
            extras={},
        )
        self.init = jax.jit(self.updater.init)
        self.step = jax.jit(self.updater.update)

    def initial(self):
        """The state with these tables."""
        state = self.init(jax.random.key(0))

        def fill(tree, **tables):
            return {
                name: jax.tree.map(
                    lambda leaf, values=tables[name]: values.reshape(leaf.shape),
                    group,
                )
                for name, group in tree.items()
            }

        critics, targets, logits = (
            each.astype("f4") for each in (self.critics, self.targets, self.logits)
        )
        return state._replace(
            params=fill(state.params, critic=critics, policy=logits),
            target=fill(state.target, critic=targets),
        )

    def update(self, state=None, key=0, updates=0, rows=None):
        """The state and the report of one update."""
        clock = CLOCK._replace(updates=np.int32(updates))
        weight = np.ones(SHAPE, "f4")
        state = self.initial() if state is None else state
        rows = self.rows if rows is None else rows
        return self.step(state, rows, weight, clock, jax.random.key(key))

    def table(self, params, name):
        """The table of a function."""
        like = self.critics if name == "critic" else self.logits
        (leaf,) = jax.tree.leaves(params[name])
        return np.asarray(leaf).reshape(like.shape)

    def policy(self, state):
        """π(·|s)."""
        likely = np.exp(self.logits[state] - self.logits[state].max())
        return likely / likely.sum()

    def updated_logits(self, q):
        """The logits after one step along Σ π (q − τ log π), with values `[S, A]`."""
        expected = self.logits.copy()
        for at in np.ndindex(SHAPE):
            state = self.rows.obs[at]
            likely = self.policy(state)
            worth = q[state] - self.tau * np.log(likely)
            expected[state] += likely * (worth - likely @ worth) / self.rows.obs.size
        return expected


@pytest.fixture(scope="session")
def soft_tables():
    """The class `SoftTables`."""
    return SoftTables
