"""Tabular updaters whose values tests can set."""

import gymnasium
import jax
import numpy as np
import optax
import pytest

from rlcli import registry
from rlcli.networks.functions import Pair, separate_network
from rlcli.networks.torsos import table
from rlcli.policies.discrete import epsilon_greedy
from rlcli.policies.sampled import random
from rlcli.types import Clock, Transition
from rlcli.updaters import Parts, Spaces

STATES, ACTIONS, EPSILON = 6, 4, 0.2
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))


class Tabular:
    """A tabular updater with `STATES` states and `ACTIONS` actions."""

    def __init__(self, name, head=None, start=0, optimizer=None, torso=None, **more):
        observation = gymnasium.spaces.Discrete(STATES)
        space = gymnasium.spaces.Discrete(ACTIONS, start=start)
        self.start = start

        def networks(name, factory, action=None, copies=None):
            inputs = observation if action is None else Pair(observation, action)
            return separate_network(
                name, torso or table(), factory(**(head or {})), inputs, copies
            )

        def policies(space, values=None, distribution=None):
            del distribution
            if values is None:
                return random(space)
            return epsilon_greedy(values, space, epsilon=EPSILON)

        factory = registry.find("updater", name).factory
        optimizer = optimizer or optax.sgd(1.0)
        spaces = Spaces(observation, space)
        updater = factory(Parts(spaces, networks, policies, optimizer), **more)
        self.whole, self.policy = updater, updater.policy
        self.init = jax.jit(updater.init)  # traced once, also for `update`
        self.update = jax.jit(self._update)
        self.estimate = jax.jit(updater.estimate)

    def state(self, weights, target):
        """Parameters and target parameters, as tables `[…, STATES, numbers]`."""
        state = self.init.eval_shape(jax.random.key(0))
        names = {name: list(group) for name, group in state.params.items()}
        ((group, (module,)),) = names.items()
        params, target_params = (
            {group: {module: {"w": np.asarray(table, np.float32)}}}
            for table in (weights, target)
        )
        target_params = target_params if state.target != () else ()
        state = state._replace(params=params, target=target_params, optimizer=None)
        return state, group

    def _update(self, params, target, rows, weight, key):
        state = self.init(jax.random.key(0))._replace(params=params, target=target)
        return self.whole.update(state, rows, weight, CLOCK, key)

    def updated(self, rows, weights, target, weight=None, key=0):
        """The tables after one gradient step, and the report."""
        state, group = self.state(weights, target)
        weight = np.ones(rows.reward.shape, "f4") if weight is None else weight
        new, report = self.update(
            state.params, state.target, rows, weight, jax.random.key(key)
        )
        return jax.tree.leaves(new.params[group])[0], report

    def rows(self, seed=0, shape=(3, 5)):
        """Random rows `[T, B]` as tracers return them."""
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
