"""What the tests beside MinAtar share: its games, with randomness of our choice."""

import jax
import jax.numpy as jnp
import minatar
import numpy as np
import pytest

from rlcli.environments.native.minatar import game

# The results do not depend on compiler options; compiling takes a third of the time.
FAST_COMPILE = {"xla_backend_optimization_level": 0}
WIDTH = 2500  # states in one call


class Script:
    """In place of NumPy's generator: gives what it was told, call by call."""

    def __init__(self):
        self.calls = []

    def rand(self, *shape):
        return self._next("rand", shape)

    def randint(self, *limits, **named):
        return self._next("randint", limits + tuple(named.values()))

    def _next(self, name, arguments):
        expected, value = self.calls.pop(0)
        assert name == expected, f"{name}{arguments} was not foreseen"
        return value


class Beside:
    """One of MinAtar's games beside ours.

    `state_of` reads the game's state out of theirs as a record of ours; `calls_of`
    says, before a step with an action, which random numbers theirs will ask for;
    `plain` takes from a batch of states what means nothing in them.
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
        self.theirs = minatar.Environment(name, difficulty_ramping=ramping)
        self.script = self.theirs.random = self.theirs.env.random = Script()
        self.core, self.most = make(**options), game.max_state(rules)
        self.state_of, self.calls_of, self.plain = state_of, calls_of, plain
        self.rows = []
        self.draw = jax.jit(jax.vmap(self.core.draw), compiler_options=FAST_COMPILE)
        self.step = jax.jit(jax.vmap(self.core.step), compiler_options=FAST_COMPILE)
        self.reset = jax.jit(jax.vmap(self.core.reset), compiler_options=FAST_COMPILE)
        self.follow = jax.jit(self._follow, compiler_options=FAST_COMPILE)

    def state(self):
        """Theirs, as ours."""
        record = game.PlayState(self.state_of(self.theirs.env), self.theirs.last_action)
        return jax.tree.map(np.asarray, record)

    def noises(self, seed, number):
        """What ours draws, `[number, ...]`."""
        keys = jax.random.split(jax.random.key(seed), number)
        return jax.tree.map(np.asarray, self.draw(keys))

    def act(self, action, noise):
        """One step of theirs, with our noise; what came of it is kept for `check`."""
        env, before = self.theirs.env, self.state()
        self.script.calls = [
            ("rand", 0.0 if noise.repeat else 0.5),
            *self.calls_of(env, before.action if noise.repeat else action, noise.game),
        ]
        reward, terminal = self.theirs.act(action)
        assert not self.script.calls, "fewer random numbers than foreseen"
        seen = (self.theirs.state(), reward, terminal)
        self.rows.append((before, np.int32(action), noise, self.state(), seen))
        return terminal

    def check(self):
        """Every step since the last check is ours; what they were, as arrays."""
        rows = jax.tree.map(lambda *each: np.stack(each), *self.rows)
        self.rows = []
        for begin in range(0, len(rows[1]), WIDTH):
            # Padded with its own rows: one program for any number.
            wanted = np.arange(begin, begin + WIDTH) % len(rows[1])
            before, action, noise, after, seen = jax.tree.map(
                lambda leaf, wanted=wanted: leaf[wanted], rows
            )
            packed = game.pack(self.most, before)
            words, timestep = self.step(packed, action, noise)
            found = game.unpack(self.most, words)
            self.equal(found, after)
            obs, reward, terminal = seen
            np.testing.assert_array_equal(timestep.next_obs, obs)
            np.testing.assert_array_equal(timestep.obs, obs)
            np.testing.assert_array_equal(timestep.reward, reward)
            np.testing.assert_array_equal(timestep.last, terminal)
            np.testing.assert_array_equal(timestep.discount, 1.0 - terminal)
        return rows

    def check_play(self, seeds, steps):
        """Play from seeds, side by side: the whole of it; and then as `check`.

        Ours is given a state at the beginning of each episode only.
        """
        first = []
        for seed in seeds:
            first.append(self.play(seed, steps))
        rows = jax.tree.map(lambda *each: np.stack(each), *self.rows)
        shape = (len(seeds), steps)
        before, action, noise, _, (seen, reward, terminal) = jax.tree.map(
            lambda leaf: np.swapaxes(leaf.reshape(*shape, *leaf.shape[1:]), 0, 1), rows
        )
        given = game.pack(self.most, before)
        start = tuple(word[0] for word in given)
        inputs = (np.stack(first, axis=1), given, action, noise)
        timesteps = self.follow(start, inputs)
        np.testing.assert_array_equal(timesteps.next_obs, seen)
        np.testing.assert_array_equal(timesteps.reward, reward)
        np.testing.assert_array_equal(timesteps.last, terminal)
        return self.check()

    def _follow(self, state, inputs):
        def step(state, inputs):
            first, given, action, noise = inputs
            state = jax.tree.map(
                lambda new, old: jnp.where(
                    first.reshape(-1, *[1] * (new.ndim - 1)), new, old
                ),
                given,
                state,
            )
            return jax.vmap(self.core.step)(state, action, noise)

        return jax.lax.scan(step, state, inputs)[1]

    def equal(self, found, expected):
        """Whether states are the same where they mean anything."""
        found, expected = (
            game.PlayState(self.plain(jax.tree.map(np.asarray, each.game)), each.action)
            for each in (found, expected)
        )
        jax.tree.map(np.testing.assert_array_equal, found, expected)

    def check_reset(self):
        """Every episode begins as theirs, where theirs always begins alike."""
        self.restart(np.random.default_rng(0))
        state, obs = self.reset(jax.random.split(jax.random.key(0), 3))
        expected, seen = jax.tree.map(
            lambda leaf: np.stack([leaf] * 3), (self.state(), self.theirs.state())
        )
        self.equal(game.unpack(self.most, state), expected)
        np.testing.assert_array_equal(obs, seen)

    def play(self, seed, steps):
        """Episodes of random actions, from resets of theirs; where they began."""
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
        """A new episode of theirs, with its own randomness."""
        self.theirs.env.random = np.random.RandomState(rng.integers(2**31))
        self.theirs.reset()
        self.theirs.env.random = self.script
        self.theirs.last_action = 0  # as ours does: see test_game.py

    def mutated(self, mutate, seed, number):
        """A step from each of many states that `mutate(rng, env)` makes."""
        rng = np.random.default_rng(seed)
        noises = self.noises(seed, number)
        for i in range(number):
            self.restart(rng)
            mutate(rng, self.theirs.env)
            self.theirs.last_action = int(rng.integers(6))
            noise = jax.tree.map(lambda leaf, i=i: leaf[i], noises)
            self.act(rng.integers(6), noise)


@pytest.fixture(scope="session")
def pair_class():
    """The class of pairs: one of MinAtar's games and ours."""
    return Beside
