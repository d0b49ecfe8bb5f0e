"""Fixtures to compare games with MinAtar's, states the same randomness."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.environments.native.minatar import game

# MinAtar's window needs these, and importing them takes more than a second.
_WINDOW = {name: sys.modules.get(name) for name in ("matplotlib", "seaborn")}
sys.modules |= dict.fromkeys(_WINDOW, None)
import minatar  # noqa: E402
import minatar.gym  # noqa: E402

for _name, _module in _WINDOW.items():
    if _module is None:
        del sys.modules[_name]
    else:
        sys.modules[_name] = _module

# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}
WIDTH = 2500  # states in one call


class Script:
    """Replaces NumPy's generator: returns scripted values, call by call."""

    def __init__(self):
        self.calls = []

    def rand(self, *shape):
        return self._next("rand", shape)

    def randint(self, *limits, **named):
        return self._next("randint", limits + tuple(named.values()))

    def _next(self, name, arguments):
        expected, value = self.calls.pop(0)
        assert name == expected, f"{name}{arguments} was not expected"
        return value


class GamePair:
    """A game of MinAtar (`reference`) and the same game of rlcli.

    `state_of` converts a state of the reference to a state of rlcli's game. `calls_of`
    lists the random calls of the reference before a step with an action. `plain`
    removes meaningless values from a batch of states.
    """

    def __init__(
        self,
        name,
        make,
        rules,
        state_of,
        calls_of,
        plain=lambda state: state,
        **options,
    ):
        ramping = options.get("difficulty_ramping", True)
        self.reference = minatar.Environment(name, difficulty_ramping=ramping)
        self.script = self.reference.random = self.reference.env.random = Script()
        self.core, self.max_values = make(**options), game.max_state(rules)
        self.state_of, self.calls_of, self.plain = state_of, calls_of, plain
        self.rows = []
        self.draw = jax.jit(jax.vmap(self.core.draw), compiler_options=FAST_COMPILE)
        self.reset = jax.jit(jax.vmap(self.core.reset), compiler_options=FAST_COMPILE)
        self.unpack = jax.jit(
            functools.partial(game.unpack_state, self.max_values),
            compiler_options=FAST_COMPILE,
        )
        self.step_plain = jax.jit(self._step_plain, compiler_options=FAST_COMPILE)
        self.follow = jax.jit(self._follow, compiler_options=FAST_COMPILE)

    def state(self):
        """The state of the reference, as a state of rlcli."""
        record = game.PlayState(
            self.state_of(self.reference.env), self.reference.last_action
        )
        return jax.tree.map(np.asarray, record)

    def noises(self, seed, number):
        """The noise of rlcli's game, `[number, ...]`."""
        keys = jax.random.split(jax.random.key(seed), number)
        return jax.tree.map(np.asarray, self.draw(keys))

    def act(self, action, noise):
        """Steps the reference with the given noise; records the step for `check`."""
        env, before = self.reference.env, self.state()
        self.script.calls = [
            ("rand", 0.0 if noise.repeat else 0.5),
            *self.calls_of(env, before.action if noise.repeat else action, noise.game),
        ]
        reward, terminal = self.reference.act(action)
        assert not self.script.calls, "fewer random numbers than expected"
        seen = (self.reference.state(), reward, terminal)
        self.rows.append((before, np.int32(action), noise, self.state(), seen))
        return terminal

    def check(self):
        """Compares all steps since the last check; returns them as arrays."""
        rows = jax.tree.map(lambda *leaves: np.stack(leaves), *self.rows)
        self.rows = []
        for begin in range(0, len(rows[1]), WIDTH):
            # Padded with its own rows, so that one program serves any number.
            indices = np.arange(begin, begin + WIDTH) % len(rows[1])
            before, action, noise, after, seen = jax.tree.map(
                lambda leaf, indices=indices: leaf[indices], rows
            )
            actual, timestep = jax.device_get(self.step_plain(before, action, noise))
            self.equal(actual, after)
            obs, reward, terminal = seen
            np.testing.assert_array_equal(timestep.next_obs, obs)
            np.testing.assert_array_equal(timestep.obs, obs)
            np.testing.assert_array_equal(timestep.reward, reward)
            np.testing.assert_array_equal(timestep.last, terminal)
            np.testing.assert_array_equal(timestep.discount, 1.0 - terminal)
        return rows

    def check_play(self, seeds, steps):
        """Plays from several seeds; compares whole trajectories, then single steps.

        rlcli's game receives a state only at the beginning of each episode.
        """
        first = []
        for seed in seeds:
            first.append(self.play(seed, steps))
        rows = jax.tree.map(lambda *leaves: np.stack(leaves), *self.rows)
        shape = (len(seeds), steps)
        before, action, noise, _, (seen, reward, terminal) = jax.tree.map(
            lambda leaf: np.swapaxes(leaf.reshape(*shape, *leaf.shape[1:]), 0, 1), rows
        )
        timesteps = self.follow(np.stack(first, axis=1), before, action, noise)
        np.testing.assert_array_equal(timesteps.next_obs, seen)
        np.testing.assert_array_equal(timesteps.reward, reward)
        np.testing.assert_array_equal(timesteps.last, terminal)
        return self.check()

    def _step_plain(self, state, action, noise):
        """A step of a batch of states that are not packed."""
        words = game.pack_state(self.max_values, state)
        words, timestep = jax.vmap(self.core.step)(words, action, noise)
        return game.unpack_state(self.max_values, words), timestep

    def _follow(self, first, before, action, noise):
        packed = game.pack_state(self.max_values, before)

        def step(state, inputs):
            first, states, action, noise = inputs
            state = jax.tree.map(
                lambda new, old: jnp.where(
                    first.reshape(-1, *[1] * (new.ndim - 1)), new, old
                ),
                states,
                state,
            )
            return jax.vmap(self.core.step)(state, action, noise)

        start = jax.tree.map(lambda word: word[0], packed)
        return jax.lax.scan(step, start, (first, packed, action, noise))[1]

    def equal(self, actual, expected):
        """Asserts that two states are equal, except for meaningless values."""
        actual, expected = (
            game.PlayState(
                self.plain(jax.tree.map(np.asarray, state.game)), state.action
            )
            for state in (actual, expected)
        )
        jax.tree.map(np.testing.assert_array_equal, actual, expected)

    def check_reset(self):
        """Compares the initial states of games where they are fixed."""
        self.restart(np.random.default_rng(0))
        state, obs = self.reset(jax.random.split(jax.random.key(0), 3))
        expected, seen = jax.tree.map(
            lambda leaf: np.stack([leaf] * 3), (self.state(), self.reference.state())
        )
        self.equal(self.unpack(state), expected)
        np.testing.assert_array_equal(obs, seen)

    def play(self, seed, steps):
        """Plays random actions from resets; returns where episodes began."""
        rng = np.random.default_rng(seed)
        noises = self.noises(seed, steps)
        terminal, first = True, []
        for t in range(steps):
            first.append(terminal)
            if terminal:
                self.restart(rng)
            noise = jax.tree.map(lambda leaf, t=t: leaf[t], noises)
            terminal = self.act(rng.integers(6), noise)
        return np.array(first)

    def restart(self, rng):
        """Resets the reference, with its own randomness."""
        self.reference.env.random = np.random.RandomState(rng.integers(2**31))
        self.reference.reset()
        self.reference.env.random = self.script
        self.reference.last_action = 0  # as in rlcli: see test_game.py

    def mutated(self, mutate, seed, number):
        """Takes a step from each of many states modified by `mutate(rng, env)`."""
        rng = np.random.default_rng(seed)
        noises = self.noises(seed, number)
        for i in range(number):
            self.restart(rng)
            mutate(rng, self.reference.env)
            self.reference.last_action = int(rng.integers(6))
            noise = jax.tree.map(lambda leaf, i=i: leaf[i], noises)
            self.act(rng.integers(6), noise)


@pytest.fixture(scope="session")
def pair_class():
    """The class of a MinAtar game and the same game of rlcli."""
    return GamePair
