"""Updaters of tables, whose every number a test may set."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlcli import registry
from rlcli.networks.functions import Pair, separate_network
from rlcli.networks.torsos import table
from rlcli.policies.discrete import epsilon_greedy
from rlcli.policies.sampled import random
from rlcli.types import Clock, Transition
from rlcli.updaters import Spaces

STATES, ACTIONS, EPSILON = 6, 4, 0.2
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))


class Tabular:
    """An updater of tables, with as many states and actions as given."""

    def __init__(self, name, head=None, start=0, optimizer=None, torso=None, **more):
        shown = gymnasium.spaces.Discrete(STATES)
        space = gymnasium.spaces.Discrete(ACTIONS, start=start)
        self.start = start

        def networks(name, factory, action=None, copies=None):
            inputs = shown if action is None else Pair(shown, action)
            return separate_network(
                name, torso or table(), factory(**(head or {})), inputs, copies
            )

        def policies(space, values=None):
            if values is None:
                return random(space)
            return epsilon_greedy(values, space, epsilon=EPSILON)

        factory = registry.find("updater", name).factory
        optimizer = optimizer or optax.sgd(1.0)
        whole = factory(Spaces(shown, space), networks, policies, optimizer, **more)
        self.whole, self.policy = whole, whole.policy
        self.update = jax.jit(functools.partial(self._update, whole))
        self.estimate = jax.jit(whole.estimate)

    def state(self, weights, target):
        """Parameters and target parameters, as tables `[…, STATES, numbers]`."""
        begun = jax.eval_shape(self.whole.init, jax.random.key(0))
        names = {name: list(group) for name, group in begun.params.items()}
        ((group, (module,)),) = names.items()
        params, follower = (
            {group: {module: {"w": jnp.asarray(each, jnp.float32)}}}
            for each in (weights, target)
        )
        follower = follower if begun.target != () else ()
        return begun._replace(params=params, target=follower, optimizer=None), group

    @staticmethod
    def _update(whole, params, target, rows, weight, key):
        state = whole.init(jax.random.key(0))._replace(params=params, target=target)
        return whole.update(state, rows, weight, CLOCK, key)

    def updated(self, rows, weights, target, weight=None, key=0):
        """New tables, and the report, of one gradient step."""
        state, group = self.state(weights, target)
        weight = np.ones(rows.reward.shape, "f4") if weight is None else weight
        new, report = self.update(
            state.params, state.target, rows, weight, jax.random.key(key)
        )
        return jax.tree.leaves(new.params[group])[0], report

    def rows(self, seed=0, shape=(3, 5)):
        """Rows `[T, B]` as a tracer leaves them."""
        rng = np.random.default_rng(seed)
        return Transition(
            obs=rng.integers(0, STATES, shape),
            action=self.start + rng.integers(0, ACTIONS, shape),
            reward=rng.normal(size=shape).astype("f4"),
            discount=rng.choice([0.0, 0.9, 0.81], shape).astype("f4"),
            next_obs=rng.integers(0, STATES, shape),
            first=np.zeros(shape, bool),
            last=np.zeros(shape, bool),
            extras={},
        )


@pytest.fixture
def tabular():
    return Tabular
