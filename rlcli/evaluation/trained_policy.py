"""Trained policy: acts with the policy of one seed of a run, one step at a time.

`rlcli.load` wraps the `Policy` of an agent for users. It maps elements of the
environment's own spaces to the batches of the contract and back
(`evaluation.policy_spaces`, with the functions of `spaces.canonical`). The frame stack
is part of the environment in training, so a trained policy has its own
(`preprocessing.frame_stack.frame_stacker`, the same functions), in its state. The
`Inspection` of a policy has the functions that follow from its updater's `acting`. The
random numbers of `act` and of `make_env` are those of an evaluation
(`loop.episode_records`).
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Bool, Float, Int32

from rlcli.assembly import environment_preprocessing
from rlcli.distributions import Distribution
from rlcli.environments.vector import select_per_environment
from rlcli.errors import RlcliError
from rlcli.evaluation.episodes_env import make_episodes_env
from rlcli.evaluation.policy_spaces import (
    PolicySpaces,
    has_jax_arrays,
    read_elements,
    write_action,
)
from rlcli.loop.episode_records import check_evaluation_index, evaluation_keys
from rlcli.loop.progress import Setup
from rlcli.preprocessing.frame_stack import frame_stacker
from rlcli.recipe import Recipe, resolve
from rlcli.spaces import zeros
from rlcli.spaces.canonical import Canonical, canonical_spaces
from rlcli.types import (
    Agent,
    Array,
    ArrayTree,
    External,
    Inputs,
    Key,
    Transition,
)
from rlcli.xla.dependencies import read_leaves


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ActionDistribution:
    """A batch of distributions over actions; a pytree, as `jit` and `vmap` require."""

    parameters: Array  # `[*batch, size]`
    family: Distribution = dataclasses.field(metadata={"static": True})

    def sample(self, key: Key) -> ArrayTree:
        """Samples one action from each distribution, `[*batch, ...]`."""
        batch = self.parameters.shape[:-1]
        flat = self.parameters.reshape((-1, self.parameters.shape[-1]))
        sample = self.family.sample(flat, self.family.draw(key, flat.shape[0]))
        return jax.tree.map(lambda leaf: leaf.reshape(batch + leaf.shape[1:]), sample)

    def mode(self) -> ArrayTree:
        """The most likely action, `[*batch, ...]`."""
        return self.family.mode(self.parameters)

    def log_prob(self, action: ArrayTree) -> Array:
        """The log-probability or log-density of actions, `[*batch]`."""
        return self.family.log_prob(self.parameters, action)

    def entropy(self) -> Array:
        """The entropy in nats, `[*batch]`."""
        return self.family.entropy(self.parameters)

    @property
    def probabilities(self) -> Array:
        """The probability of each action, `[*batch, actions]`, if they are Discrete."""
        if self.family.name != "categorical":
            raise RlcliError(
                f"a `{self.family.name}` distribution has no table of probabilities",
                "use `log_prob`, `sample`, `mode` or `entropy`",
            )
        return jax.nn.softmax(self.parameters)


def environment_family(family: Distribution, canonical: Canonical) -> Distribution:
    """The family over the actions of the environment, without clipping."""

    def log_prob(parameters: Array, action: ArrayTree) -> Array:
        density = family.log_prob(parameters, read_elements(canonical, action)[0])
        return density - canonical.log_volume

    return family._replace(
        sample=lambda *inputs: canonical.scale_to_external(family.sample(*inputs)),
        mode=lambda parameters: canonical.scale_to_external(family.mode(parameters)),
        log_prob=log_prob,
        entropy=lambda parameters: family.entropy(parameters) + canonical.log_volume,
    )


_SAMPLES = 16  # of the actions in a value, where an estimate samples one
# The optional functions of a policy: what they compute, and a hint if there is none.
_INSPECTIONS: Mapping[str, tuple[str, str]] = {
    "value": (
        "value function",
        "a policy file contains only what acting needs, not the critics of "
        "off-policy actor-critics, which `rlcli.load(run, checkpoint=-1)` loads; some "
        "algorithms learn no value function",
    ),
    "action_value": ("critic", "load a checkpoint: `rlcli.load(run, checkpoint=-1)`"),
    "action_values": (
        "action values",
        "only algorithms that act on action values have them; try `value`",
    ),
    "parameters": ("distribution over actions", "`explore` samples its actions"),
}


def of_policy(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of a policy's `Inspection` as one that gets an action, too."""
    return lambda params, obs, memory, first, action: function(
        params, obs, memory, first
    )


def critic_functions(
    agent: Agent, space: gymnasium.Space
) -> dict[str, Callable[..., Float[Array, "B"]]]:
    """`value` and `action_value`: (learner, obs[B], memory, first[B], action) -> `[B]`.

    `learner` is the state of the agent's updater (`AgentInside`), and `space` that of
    canonical actions. The values are those of `Estimates`, which every algorithm that
    learns values has for tracers, also where its policy acts without.
    """
    assert agent.inside is not None  # as in every agent that `loop.agents` makes
    function = agent.inside.estimate

    def estimate(
        learner: ArrayTree,
        obs: ArrayTree,
        memory: ArrayTree,
        first: Bool[Array, "B"],
        action: ArrayTree,
    ) -> tuple[Array, Array]:
        """The mean estimates of each observation, as an unroll of one step, `[B]`."""
        action = zeros(space, first.shape) if action is None else action
        keys = jax.random.split(jax.random.key(np.uint32(0)), _SAMPLES)

        def estimate_row(*row: ArrayTree) -> tuple[Array, Array]:
            """With the same random numbers wherever it is in a batch."""
            obs, carry, action = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], row)
            number, flag = jnp.zeros(1), jnp.zeros(1, bool)
            extras = {"carry": carry, "log_prob": number, "cut": flag}
            step = Transition(obs, action, number, number + 1, obs, flag, flag, extras)
            steps = jax.tree.map(lambda leaf: leaf[None], step)
            read = operator.attrgetter("v_tm1", "q_tm1")
            found = jax.lax.map(lambda key: read(function(learner, steps, key)), keys)
            return jax.tree.map(jnp.mean, found)

        return jax.vmap(estimate_row)(obs, memory[0], action)

    return {
        "value": lambda *inputs: estimate(*inputs)[0],
        "action_value": lambda *inputs: estimate(*inputs)[1],
    }


class PolicyState(NamedTuple):
    """The state of a policy between steps; every leaf is `[*batch, ...]`.

    The next observation of a row is the first of an episode where `first`.
    """

    first: Bool[Array, "*batch"]
    memory: ArrayTree  # the recurrent state, and the state of the exploration noise
    frames: tuple[ArrayTree, ...]  # the stacked frames
    # The random numbers of `act`, which break ties: those of `rlcli eval --seed`, and
    # the steps so far. A batch uses those of its row with the most steps.
    evaluation: Int32[Array, "*batch"]
    time: Int32[Array, "*batch"]


class TrainedPolicy:
    """The policy of one seed of a run; `rlcli.load` returns it.

    `act`, `explore`, `value`, `action_values` and `distribution` are pure functions of
    one observation or of a batch with any leading axes: `jax.jit(policy.act)` and
    `jax.vmap(policy.act)` work. Observations are those of the environment with the
    recipe's wrappers, without preprocessing: `spaces.observation`. They are NumPy or
    JAX arrays, and so are the results.

    Attributes:
        params: what the policy needs to act: parameters, and statistics of observations
            if the recipe normalizes them.
        recipe: the recipe with every default, as a dict that `rlcli.train` accepts.
        spaces: `spaces.observation` and `spaces.action` of one environment.
        seed: the seed of the run.
        steps: environment steps of the seed when the policy was saved.
        file: the file of the policy.
    """

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        inputs: Inputs,
        params: ArrayTree,
        *,
        seed: int,
        steps: int,
        file: Path,
        learner: ArrayTree = (),
    ) -> None:
        """`params` is the acting state of `seed`; `inputs` those of its policy.

        `learner` is the state of its updater; () in a policy file.
        """
        self.params = jax.tree.map(jnp.asarray, params)
        self.recipe: dict[str, Any] = resolve(recipe)
        self.seed, self.steps, self.file = seed, steps, file
        self._source = recipe, inputs.clock
        agent = setup.at(inputs)[1]
        self._policy = agent.policy
        own = self._policy.inspection
        # Each with the parameters that it reads.
        self._inspections: dict[str, tuple[Callable[..., Array], ArrayTree]] = {
            name: (of_policy(function), self.params)
            for name in _INSPECTIONS
            if (function := getattr(own, name, None)) is not None
        }
        if jax.tree.leaves(learner):
            critics = critic_functions(agent, setup.environment.action)
            if own.value is not None or own.action_values is not None:
                del critics["value"]
            learner = jax.tree.map(jnp.asarray, learner)
            self._inspections |= {k: (each, learner) for k, each in critics.items()}
        external = setup.environment.own
        self.spaces = PolicySpaces(
            external.frame or external.observation, external.action
        )
        self._observation, self._action = canonical_spaces(External(*self.spaces))
        # JAX compiles functions of a distribution for each family: it is always this.
        family = self._policy.inspection.family
        self._family = family and environment_family(family, self._action)
        self._stacker = frame_stacker(
            self._observation.space, environment_preprocessing(recipe), leading=1
        )
        self._read: dict[str, set[str]] = {}  # by function, see `_reads`
        self._call = jax.jit(self._compute, static_argnums=(0, 1))
        self._begin = jax.jit(self._initial_state, static_argnums=0)

    def __repr__(self) -> str:
        parts = ("updater", "environment")
        names = " in ".join(f"`{self.recipe[part]['name']}`" for part in parts)
        return f"TrainedPolicy({names}, seed {self.seed}, {self.steps:,} steps)"

    def initial_state(
        self, batch: tuple[int, ...] = (), *, evaluation: int = 0
    ) -> PolicyState:
        """The state before the first observation of a batch of episodes.

        Args:
            batch: the leading axes of the observations; `()` for a single one.
            evaluation: selects the random numbers of `act`, as `rlcli eval --seed`.
        """
        check_evaluation_index(evaluation)
        return self._begin(tuple(batch), np.array(evaluation, np.int32))

    def act(
        self,
        obs: Any,
        state: PolicyState | None = None,
        first: Bool[Array, "*batch"] | bool | None = None,
        key: Key | None = None,
    ) -> tuple[ArrayTree, PolicyState]:
        """Selects the greedy action, as `rlcli eval` does.

        Args:
            obs: one observation, or a batch of them. A Dict may lack members that the
                policy does not read, such as those that only its critic saw.
            state: what the previous call returned; None before the first observation.
            first: where an observation is the first of a new episode, `[*batch]`: the
                policy resets its state there. Not needed where `state` is new.
            key: breaks ties at random; by default the random numbers of `rlcli eval`.

        Returns:
            The action for `env.step`, and the new state. Actions are NumPy arrays in
            the dtypes of `spaces.action` if `obs` is; and JAX arrays if `obs` is, or
            under `jit` and `vmap`.
        """
        return self._select_action("exploit", obs, state, first, key)

    def explore(
        self,
        obs: Any,
        state: PolicyState | None,
        key: Key,
        first: Bool[Array, "*batch"] | bool | None = None,
    ) -> tuple[ArrayTree, PolicyState]:
        """Samples an action as in training, at the time when the policy was saved."""
        return self._select_action("explore", obs, state, first, key)

    def value(
        self,
        obs: Any,
        state: PolicyState | None = None,
        first: Bool[Array, "*batch"] | bool | None = None,
    ) -> Array:
        """The value of observations, `[*batch]`: v(s), or max q(s, ·).

        The arguments are those that `act` would get. With `normalize: {reward: true}`
        values are in the unit of normalized rewards. Raises an `RlcliError` if there is
        none: DDPG, TD3 and SAC have one only in a checkpoint, that of their target
        critics and of actions of the policy, in the unit of the environment; evolution
        strategies have none.
        """
        inspection = self._policy.inspection
        if inspection.value is None and inspection.action_values is not None:
            q = self.action_values(obs, state, first)
            return q.max(axis=-1)
        return self._inspect("value", obs, state, first)

    def action_value(
        self,
        obs: Any,
        action: Any,
        state: PolicyState | None = None,
        first: Bool[Array, "*batch"] | bool | None = None,
    ) -> Array:
        """The critic's value q(s, a) of actions, `[*batch]`, in the environment's unit.

        `action` is what `act` would return. Only of a policy that was loaded from a
        checkpoint, see `rlcli.load`; v(s) where the algorithm learns no action values.
        """
        element, _ = read_elements(self._action, action)
        return self._inspect("action_value", obs, state, first, element)

    def action_values(
        self,
        obs: Any,
        state: PolicyState | None = None,
        first: Bool[Array, "*batch"] | bool | None = None,
    ) -> Array:
        """The values of all actions, q(s, ·), `[*batch, actions]`.

        Illegal actions have the value −10⁹. Raises an `RlcliError` if the algorithm
        learns no values of all actions.
        """
        return self._inspect("action_values", obs, state, first)

    def distribution(
        self,
        obs: Any,
        state: PolicyState | None = None,
        first: Bool[Array, "*batch"] | bool | None = None,
    ) -> ActionDistribution:
        """The distribution of the actions of `explore`, before clipping to a Box.

        For planning policies, the improved policy of a search. Raises an `RlcliError`
        if the policy adds noise to a deterministic action.
        """
        parameters = self._inspect("parameters", obs, state, first)
        return ActionDistribution(jnp.asarray(parameters), self._family)

    def make_env(self) -> gymnasium.Env:
        """Makes the environment in which `rlcli eval` evaluates the policy.

        `reset(seed=s)` starts the first episode of `rlcli eval --seed s`, and every
        further `reset()` the next one. Episodes are those of `rlcli eval` as long as it
        runs all of them in parallel: up to 128, or 10 of another library.
        """
        return make_episodes_env(*self._source, self.seed)

    def _select_action(
        self, method: str, obs: Any, state: PolicyState | None, first: Any, key: Any
    ) -> tuple[ArrayTree, PolicyState]:
        """Calls `method` of the policy, and converts its action."""
        action, new_state = self._read_and_compute(method, obs, state, first, key)
        as_numpy = not (has_jax_arrays(obs) or _is_traced(action))
        return write_action(self._action, action, as_numpy), new_state

    def _inspect(
        self, name: str, obs: Any, state: Any, first: Any, action: Any = None
    ) -> Array:
        """Calls an optional function of the policy, or of the critics."""
        if name not in self._inspections:
            what, hint = _INSPECTIONS[name]
            parts = ("policy", "updater")
            owner = " of ".join(f"{k} `{self.recipe[k]['name']}`" for k in parts)
            raise RlcliError(f"{owner} has no {what}", hint)
        result = self._read_and_compute(name, obs, state, first, None, action)
        is_jax = has_jax_arrays(obs) or _is_traced(result)
        return result if is_jax else np.asarray(result)[()]

    def _read_and_compute(
        self,
        name: str,
        obs: Any,
        state: PolicyState | None,
        first: Any,
        key: Any,
        action: Any = None,
    ) -> Any:
        """Converts an observation, checks the batch shapes, and calls a function."""
        obs, batch = read_elements(self._observation, self._complete(name, obs))
        state = self.initial_state(batch) if state is None else state
        if state.first.shape != batch:
            raise RlcliError(
                f"the state has batch shape {state.first.shape}, but the observation "
                f"has batch shape {batch}",
                "`policy.initial_state(batch)` creates the state of a new batch",
            )
        first = False if first is None else first
        if np.shape(first) not in ((), batch):
            raise RlcliError(
                f"`first` has shape {np.shape(first)}, but the observation has batch "
                f"shape {batch}",
                "pass one bool for each observation",
            )
        params = self._params_of(name)
        return self._call(name, batch, params, obs, state, first, key, action)

    def _params_of(self, name: str) -> ArrayTree:
        return self._inspections[name][1] if name in _INSPECTIONS else self.params

    def _complete(self, name: str, obs: Any) -> Any:
        """The observation, with zeros for members that a function does not read."""
        space = self.spaces.observation
        if not (isinstance(space, gymnasium.spaces.Dict) and isinstance(obs, Mapping)):
            return obs
        missing = [key for key in space.spaces if key not in obs]
        given = next((key for key in space.spaces if key in obs), None)
        if given is None or not missing or self._reads(name).intersection(missing):
            return obs  # an error says what is missing
        leaf, example = (
            jax.tree.leaves(each)[0] for each in (obs[given], zeros(space[given]))
        )
        batch = np.shape(leaf)[: np.ndim(leaf) - example.ndim]
        unread = jax.tree.map(
            lambda leaf: np.zeros((*batch, *leaf.shape), leaf.dtype),
            {key: zeros(space[key]) for key in missing},
        )
        return {**obs, **unread}

    def _reads(self, name: str) -> set[str]:
        """The members of a Dict observation that a function of the policy reads."""
        if name not in self._read:
            members = zeros(self._observation.space, (1,))
            state = self.initial_state((1,))
            action = zeros(self._action.space, (1,)) if name in _INSPECTIONS else None

            def results(obs: ArrayTree) -> ArrayTree:
                key, params = jax.random.key(0), self._params_of(name)
                inputs = params, obs, state, True, key, action
                found = self._compute(name, (1,), *inputs)
                # Frames are stored whether they are read or not.
                return found if name in _INSPECTIONS else (found[0], found[1].memory)

            structure = jax.tree.structure(members)
            read = structure.unflatten(read_leaves(results, members))
            self._read[name] = {
                key for key, leaves in read.items() if any(jax.tree.leaves(leaves))
            }
        return self._read[name]

    def _initial_state(
        self, batch: tuple[int, ...], evaluation: Int32[Array, ""]
    ) -> PolicyState:
        """Implements `initial_state`."""
        number = math.prod(batch)
        # The first observation replaces these frames: only their shapes matter.
        frames = self._stacker.init(zeros(self._observation.space, (number,)))
        memory, frames = _unflatten((self._policy.initial(number), frames), batch)
        return PolicyState(
            first=jnp.ones(batch, bool),
            memory=memory,
            frames=frames,
            evaluation=jnp.full(batch, evaluation),
            time=jnp.zeros(batch, jnp.int32),
        )

    def _compute(
        self,
        name: str,
        batch: tuple[int, ...],
        params: ArrayTree,
        obs: ArrayTree,
        state: PolicyState,
        first: Bool[Array, "..."] | bool,
        key: Key | None,
        action: ArrayTree,
    ) -> Any:
        """Calls a function of the policy with flat batches. Pure and compiled."""
        begins = state.first | first
        rows = _flatten((obs, begins, state.memory, state.frames), batch)
        obs, begins, memory, frames = rows
        frames = select_per_environment(
            begins, self._stacker.init(obs), self._stacker.push(frames, obs)
        )
        inputs = params, self._stacker.observation(frames, obs), memory, begins
        if name in _INSPECTIONS:
            function, _ = self._inspections[name]
            return _unflatten(function(*inputs, _flatten(action, batch)), batch)
        act = getattr(self._policy, name)
        if key is None:  # that of an evaluation at this step
            counters = (state.evaluation, state.time)
            numbers = (jnp.max(each, initial=0) for each in counters)
            key = evaluation_keys(np.array(self.seed, np.uint32), *numbers)[0]
        noise = self._policy.draw(key, begins.shape[0])
        decision, memory = act(*inputs, noise)
        action, memory, frames = _unflatten((decision.action, memory, frames), batch)
        later = {"time": state.time + 1, "memory": memory, "frames": frames}
        return action, state._replace(first=jnp.zeros(batch, bool), **later)


def _is_traced(tree: ArrayTree) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def _flatten(tree: ArrayTree, batch: tuple[int, ...]) -> ArrayTree:
    """Merges the batch axes of every leaf into one."""
    number, axes = math.prod(batch), len(batch)
    return jax.tree.map(lambda leaf: leaf.reshape((number, *leaf.shape[axes:])), tree)


def _unflatten(tree: ArrayTree, batch: tuple[int, ...]) -> ArrayTree:
    """The inverse of `_flatten`."""
    return jax.tree.map(lambda leaf: leaf.reshape(batch + leaf.shape[1:]), tree)
