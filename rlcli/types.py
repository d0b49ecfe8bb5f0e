"""Types: the contracts between parts. Imports no other module of rlcli.

A *part* is a NamedTuple of pure functions that a factory returns. Its state is a
NamedTuple of arrays. Arrays are time-major: `[T, B, ...]` is T steps of B
environments.

Annotations name the dtype and the axes of an array: `Float[Array, "T B"]`. The letters
mean the same axes in the whole package; `...` are any axes, and "" is a scalar:

    T  steps of an unroll, or rows of a batch
    B  environments, or columns of a sample
    S  seeds
    N  a flat batch, such as T · B rows, or the windows of a sample
    C  critics of an ensemble
    M  members of a mixture
    A  actions
    K  the last axis of a prediction: atoms, quantiles, or 1

`*T`, `*B` and `*S` are any number of axes, the same in all fields of a record: a single
step has no T, a core no B, and outside of `jax.vmap` there is S in front. `make
test-slow` checks the annotations at run time.

Where random numbers are drawn at every step, a part has two functions: `draw(key) ->
noise`, and one that takes the noise. The loop draws the noise of a block of steps with
one call: the bits are the same as step by step, at a fraction of the cost. Other parts
use `key_as_noise` as their `draw`: the noise is the key.

A policy offers `log_prob`; the loop offers `carry`, the recurrent state from which the
action was selected, and `cut`, which marks episodes that the end of an unroll ends
(`train.reset`) and not the environment. Tracer and updater list in `requires` the
extras that unrolls store. After the tracer there are also `reward` (of the step alone)
and `next_carry`, and with an intrinsic reward `step_next_obs`, the next observation of
a row's first step. An extra named `next_…` belongs to `next_obs`: tracers move it with
`next_obs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

import gymnasium
import jaxtyping
import numpy as np
from annotated_types import Ge, Gt, Le
from jaxtyping import Bool, Float, Float32, Int32, Real, Shaped

if TYPE_CHECKING:
    import jax

    Array: TypeAlias = jax.Array | np.ndarray  # on the host, arrays are NumPy's
    # Arrays that a function of a part receives: inside of compiled programs, they are
    # JAX's, so the function may be annotated with `jax.Array`.
    Traced: TypeAlias = jax.Array
    # Arrays of records that compiled programs and the host make. Whoever reads one may
    # pass it to a function of `jax.Array`, and whoever makes one may give NumPy's.
    Recorded: TypeAlias = jax.Array | Any
    Key: TypeAlias = jax.Array  # a typed JAX PRNG key, consumed once
else:

    @runtime_checkable
    class Array(Protocol):
        """A JAX or NumPy array. At run time its shape and dtype identify it.

        The types themselves would require JAX, and this module does not import it.
        """

        shape: tuple[int, ...]
        dtype: np.dtype

    Traced: TypeAlias = Array
    Recorded: TypeAlias = Array
    Key: TypeAlias = jaxtyping.Key[Array, ""]

PerRow: TypeAlias = Float[Array, "T B"]  # one number per row
ArrayTree = Any  # a pytree of arrays; () where there is no state
Params = Any  # a mapping from parameter group: {"q": …} or {"shared": …, …}

# Types of options, with their ranges. A `float` option accepts a number or a schedule.
# A `Structural` option, which determines a space or a state, accepts a number only.
Probability = Annotated[float, Ge(0.0), Le(1.0)]
Positive = Annotated[float, Gt(0.0)]
NonNegative = Annotated[float, Ge(0.0)]
Count = Annotated[int, Ge(1)]
Structural = Annotated[float, "structural"]
# What an episode logs of a number in `TimeStep.info`.
InfoRule = Literal["last", "sum", "mean"]
# A count that the devices of `train.data_parallel` divide equally, such as a capacity.
Divided = Annotated[int, Ge(1), "divided"]


def key_as_noise(key: Key) -> Key:
    """The default `draw`: returns the key itself as the noise."""
    return key


class TimeStep(NamedTuple):
    """The result of one environment step; every field `[B, ...]`.

    Of games of several agents, B contains the axis of the agents, and E does not: their
    episodes end together. Of all other environments E is B.
    """

    # The input of the next action: where `last` or cut, the first of the new episode.
    obs: ArrayTree
    next_obs: ArrayTree  # the true successor, also where `last`
    reward: Float[Recorded, "*B"]
    # 0 where the episode terminated, else 1; also 0 where an agent has ended before the
    # others of its game
    discount: Float[Recorded, "*B"]
    last: Bool[Recorded, "*E"]  # any end of the episode, terminated or truncated
    # Numbers and booleans by name, logged as `Environment.info` says. On the host only
    # what the episodes log that end in this step.
    info: Mapping[str, Shaped[Recorded, "*E"]]


# The next state of an environment, and the time step that led to it.
Step = tuple[ArrayTree, TimeStep]


def no_parameters(state: ArrayTree) -> Mapping[str, Array]:
    """The `parameters` of an environment whose numbers are the same in all episodes."""
    return {}


def missing_render(state: ArrayTree, index: int = 0) -> Any:
    """The `render` of a core that has none."""
    raise RuntimeError(
        "the environment has no `render`: with `rendering` it draws its observations"
    )


class External(NamedTuple):
    """An environment as its author defined it, in its own units."""

    observation: gymnasium.Space
    action: gymnasium.Space
    # Makes a single environment of another library; None if it only has vectors, and
    # for environments of rlcli.
    make: Callable[[], gymnasium.Env] | None = None
    # The observation space before frames were stacked; None: they are not.
    frame: gymnasium.Space | None = None


class FrameStack(NamedTuple):
    """Observations that are the last frames of an episode, along an axis."""

    frames: int
    axis: int  # of each array of an observation; the newest frame is last
    padding: str  # before the first frame: `repeat` repeats it, `zero` is zeros


class Core(NamedTuple):
    """One environment: without batch axis, time limit and auto-reset.

    `environments.vector` adds these. The `obs` of a time step is its `next_obs`.
    """

    reset: Callable[[Key], tuple[ArrayTree, ArrayTree]]  # key -> state, obs
    step: Callable[..., tuple[ArrayTree, TimeStep]]  # (state, action, noise)
    observation: gymnasium.Space
    action: gymnasium.Space
    # state -> image [H, W, 3] uint8, on the host. Without it, a core built with
    # `rendering` draws its observations.
    render: Callable[..., Any] = missing_render
    # state -> the numbers, by the names of the options, that the episode has drawn from
    # their distributions, see `environments.randomization`. A vector has `[B]` of each,
    # also of options that differ between its environments.
    parameters: Callable[[ArrayTree], Mapping[str, Array]] = no_parameters
    draw: Callable[[Key], ArrayTree] = key_as_noise
    # (achieved, desired) -> reward, discount of a step whose `next_obs` has the first
    # and whose episode has the second, if observations are dicts with `achieved_goal`
    # and `desired_goal`. Both are functions of these alone, so that the replay
    # `hindsight` may replace the desired goal.
    goal_reward: Callable[..., tuple[Array, Array]] | None = None
    # The stack that every observation is, apart from an action mask. None: there is
    # none, or it is not known, because a library stacks frames on the host.
    frame_stack: FrameStack | None = None
    # `observation` and `action` are the canonical forms of these, see
    # `rlcli.spaces.canonical`. None: they are its own, and no agent may meet it.
    external: External | None = None
    # Whether a reset costs more than a step, so that on a CPU a vector resets no other
    # environments than those whose episode has ended.
    costly_reset: bool = False
    # The number of agents of a game, 0 for an environment of one agent.
    # Each agent is one environment of a vector. Observations, actions, rewards and
    # discounts have this leading axis; `last` has none: their episodes end together.
    agents: int = 0


class Host(NamedTuple):
    """What an environment on the host has in addition: resources outside of JAX."""

    save: Callable[[ArrayTree], ArrayTree]  # state -> arrays of a checkpoint
    # arrays -> state, and a sentence that names what could not be restored, "" if
    # nothing is lost
    restore: Callable[[ArrayTree], tuple[ArrayTree, str]]
    close: Callable[[ArrayTree], None]
    # Makes the same environment with other `is_restarting` (whether copies that fail
    # are restarted) or `info` (what episodes log).
    remake: Callable[..., Environment] | None = None
    # state -> the `environments.adapters.restarting.Restarts` so far; None if a failure
    # ends the run.
    restarts: Callable[[ArrayTree], Any] = lambda state: None
    # (state, name, value) sets a number of all copies. `state` None: only of the copies
    # that `reset` and `restore` make later. Raises an `RlcliError` if the environment
    # has no such number. None: no number can be set.
    set_number: Callable[[ArrayTree | None, str, float], None] | None = None
    # state -> the `environments.adapters.info_recorder.InfoStatistics` of the run
    info: Callable[[ArrayTree], Any] = lambda state: None


class Environment(NamedTuple):
    """A batch of B environments with auto-reset: a vector of cores, or on the host.

    One that JAX cannot trace has a `host`, and is not `pure`: it runs on the host, for
    all seeds simultaneously, and every array has a leading axis for the seeds (see
    `environments.adapters.host`). Fields that a `Core` has, too, mean the same.
    """

    reset: Callable[[Key], tuple[ArrayTree, ArrayTree]]
    step: Callable[..., tuple[ArrayTree, TimeStep]]  # (state, action, noise, cut=False)
    # cut: bool, broadcast to `[B]`: where the caller truncates the episode after this
    # step. A new episode begins there, as where `last`. `last` is only true where the
    # environment itself ends the episode.
    observation: gymnasium.Space  # of a single environment
    action: gymnasium.Space
    num_envs: int
    render: Callable[..., Any] = missing_render  # (state, index) -> image
    # (state, index) -> image of the final state of the episode that the last step
    # ended, before the reset; None where it is not stored. Only environments built with
    # `rendering` store it, so training does not pay for it.
    render_final: Callable[..., Any] = lambda state, index=0: None
    parameters: Callable[[ArrayTree], Mapping[str, Array]] = no_parameters
    draw: Callable[[Key], ArrayTree] = key_as_noise
    goal_reward: Callable[..., tuple[Array, Array]] | None = None
    frame_stack: FrameStack | None = None
    external: External | None = None
    host: Host | None = None
    # What episodes log of `TimeStep.info`, by name: `last`, `sum` or `mean`. Empty: all
    # of it, as `episode_info.default_rule` says.
    info: Mapping[str, InfoRule] = {}

    @property
    def pure(self) -> bool:
        """Whether JAX can trace it."""
        return self.host is None

    @property
    def own(self) -> External:
        """The environment as its author defined it."""
        return self.external or External(self.observation, self.action)


_E = TypeVar("_E", Core, Environment)
# What `wrap` leaves as it is, because no environment is without: its task.
_TASK = {"reset", "step", "observation", "action", "draw"}
_TASK |= {"num_envs", "agents", "host", "info"}
OPTIONAL_FIELDS = frozenset({*Core._fields, *Environment._fields} - _TASK)
# Functions whose first argument is the state.
_OF_STATE = {"render", "render_final", "parameters"}


def wrap(
    inner: _E,
    *,
    keeps: Collection[str] = (),
    inner_state: Callable[[ArrayTree], ArrayTree] | None = None,
    **changes: Any,
) -> _E:
    """A wrapper of environments: `inner` with `changes`, and only what it `keeps`.

        return wrap(core, keeps=["render"], step=step)

    `reset`, `step`, `draw`, the spaces and the number are those of `inner`, unless they
    change. Every other field describes `inner` or draws it: the result has it only if
    `keeps` names it or `changes` has it. A wrapper that keeps `goal_reward` thus states
    that its rewards are still those.

    Args:
        inner: a core, or a vector of environments.
        keeps: optional fields of cores or environments that are as true of the result
            as of `inner`.
        inner_state: the state of `inner` in a state of the result, if that is another:
            `render` receives it. With it, an environment on the host needs a new
            `host`.
        changes: fields of the result, by name.

    Raises:
        ValueError: for a name in `keeps` that is no optional field.
    """
    if unknown := sorted({*keeps} - OPTIONAL_FIELDS):
        raise ValueError(f"expected names of {sorted(OPTIONAL_FIELDS)}, got {unknown}")
    if inner_state and getattr(inner, "host", None) and "host" not in changes:
        raise ValueError("expected a `host` of environments with another state")
    optional = OPTIONAL_FIELDS.intersection(inner._fields)
    fields: dict[str, Any] = {name: inner._field_defaults[name] for name in optional}
    for name in optional.intersection(keeps):
        fields[name] = value = getattr(inner, name)
        is_own = value is not inner._field_defaults[name]
        if inner_state and name in _OF_STATE and is_own:
            fields[name] = _of_inner(value, inner_state)
    return inner._replace(**(fields | changes))


def _of_inner(function: Callable, inner_state: Callable) -> Callable:
    """A function of the state of an inner environment, as one of the outer state."""
    return lambda state, *index: function(inner_state(state), *index)


class RenderState(NamedTuple):
    """The state of a core built with `rendering`, with details that only images show.

    The factory of a core with such details has a positional parameter `rendering`.
    """

    state: ArrayTree  # the same as without `rendering`
    details: ArrayTree


class Decision(NamedTuple):
    """The action that a policy selects, and statistics about it."""

    action: ArrayTree  # `[B, ...]`
    extras: Mapping[str, ArrayTree]  # at least the `log_prob` of the action


class Transition(NamedTuple):
    """The one record of experience, from environment to loss: `[T, B, ...]`.

    After a tracer, `reward` is a sum of rewards, and `discount` is the factor of the
    value of `next_obs`. The target is always `reward + discount * v(next_obs)`.
    """

    obs: ArrayTree
    action: ArrayTree
    reward: Float[Recorded, "*T B"]
    discount: Float[Recorded, "*T B"]
    next_obs: ArrayTree
    first: Bool[Recorded, "*T B"]  # `obs` is the first of an episode
    last: Bool[Recorded, "*T B"]  # `next_obs` is the last of an episode
    # The extras that the tracer or the updater requires. Those named `next_…` belong to
    # `next_obs`: a tracer that replaces `next_obs` replaces them too.
    extras: Mapping[str, ArrayTree]


class SharedTorso(NamedTuple):
    """The two stages of a function whose torso other functions share.

    `features(params, key, inputs, carry, first) -> features, carries` is the same in
    all of them, as `Network.apply` up to the head, and `read(params, key, features,
    inputs) -> outputs` is the head. Arrays are `[T, B, ...]`.
    """

    features: Callable[..., tuple[Float[Array, "T B F"], ArrayTree]]
    read: Callable[..., ArrayTree]


class Network(NamedTuple):
    """A parametrized function of the observation, or of observation and action.

    `init(key) -> params`: a mapping from group, so that functions can share groups.
    `apply(params, key, inputs, carry, first) -> outputs, carries`: `inputs`, `first`
    and `outputs` are `[T, B, ...]`, and `carry` `[B, ...]` is the recurrent state
    before the first step. Where `first`, the recurrent state is reset. `carries`
    `[T, B, ...]` is the recurrent state after each step.
    `initial(batch) -> carry`: it is `()` for a feed-forward network.

    A network with batch normalization has a state: running statistics, which are in
    `params` under a group of their own, without gradients. `apply` normalizes by them.
    `learn(params, key, inputs, carry, first) -> outputs, statistics` is for losses: it
    normalizes by the statistics of the batch, and returns the updated groups of running
    statistics (`updaters.learner.Losses.statistics`). None: there is no state.
    """

    init: Callable[[Key], Params]
    apply: Callable[..., tuple[ArrayTree, ArrayTree]]
    initial: Callable[[int], ArrayTree]
    learn: Callable[..., tuple[ArrayTree, Params]] | None = None
    # The stages of `apply`, for `apply_jointly`; None if it has no shared torso.
    shared: SharedTorso | None = None
    # () -> the tree paths of the parameters of its torso and memory, by group; {} for a
    # user's forward pass, in which they cannot be told from those of a head.
    torso: Callable[[], Mapping[str, frozenset[str]]] = dict
    # Of its inputs, after preprocessing: a `networks.inputs.Pair` for two.
    space: gymnasium.Space | None = None


class Inspection(NamedTuple):
    """What can be asked of a policy: functions of `(acting, obs[B], state, first[B])`.

    A function is None where the algorithm has none, or does not keep it in `acting`.
    """

    value: Callable[..., Float[Array, "B"]] | None = None  # v(s)
    action_values: Callable[..., Float[Array, "B A"]] | None = None  # q(s, ·)
    # The parameters of the distribution of `explore`, which is of `family`, a
    # `distributions.Distribution`.
    parameters: Callable[..., Float[Array, "B size"]] | None = None
    family: Any = None

    def map(self, change: Callable[[Callable], Callable]) -> Inspection:
        """The inspection with each of its functions changed."""
        value, action_values, parameters = (
            function and change(function) for function in self[:3]
        )
        return Inspection(value, action_values, parameters, self.family)


class Policy(NamedTuple):
    """Selects actions. `state` is (recurrent state, state of the noise process).

    `explore` is the policy of training, and `exploit` the policy of evaluation:
    `(acting, obs[B], state, first[B], noise) -> Decision, state`.
    """

    initial: Callable[[int], ArrayTree]  # batch -> state
    draw: Callable[[Key, int], ArrayTree]  # (key, batch) -> noise
    explore: Callable[..., tuple[Decision, ArrayTree]]
    exploit: Callable[..., tuple[Decision, ArrayTree]]
    # (network outputs [..., ·], action) -> log-probability [...] under `explore`
    log_prob: Callable[[ArrayTree, ArrayTree], Float[Array, "..."]]
    inspection: Inspection = Inspection()


class Estimates(NamedTuple):
    """Estimates of an updater for steps `[T, B]`, for tracers that bootstrap.

    Values are those of the target parameters, if the updater has any.
    """

    v_tm1: Float[Recorded, "T B"]  # value of `obs`
    v_t: Float[Recorded, "T B"]  # value of `next_obs`
    # Of the action, under the policy whose values these are.
    log_prob: Float[Recorded, "T B"]
    q_tm1: Float[Recorded, "T B"]  # value of the action taken
    carry: ArrayTree = ()  # `[T, B, ...]`: the recurrent state before `next_obs`
    # The environment's rewards as the updater bounds them; None: those of the steps.
    reward: Float[Recorded, "T B"] | None = None
    # Added to the rewards of the steps before they are traced; None: nothing is added.
    intrinsic_reward: Float[Recorded, "T B"] | None = None


class Tracer(NamedTuple):
    """Turns steps into transitions with returns, such as n-step returns or GAE.

    A tracer may add an `advantage` to the extras, if it looks further ahead than the
    loss of the updater: the advantage of the action over the value of `obs`.
    """

    # Steps that one row spans at most. None: a whole episode, which requires a replay
    # of episodes.
    window: int | None
    trace: Callable[[Transition, Estimates], Transition]  # returns complete rows only
    gamma: Array | float  # the discount factor of one step
    requires: tuple[str, ...] = ()  # the extras it reads
    # Whether it corrects the returns of actions that the current policy would not
    # select, so that their advantage is about 0.
    is_off_policy: bool = False
    # Without so many consecutive samples, options such as λ have no effect.
    sequence_length: int = 1


class ReplayTraits(NamedTuple):
    """What a replay is and requires, as plain data: `assembly` compares it."""

    capacity: int = 0  # steps of one seed, over all its environments
    window: int = 0  # consecutive steps that the buffer must hold before it can sample
    # Whether samples are whole episodes. The buffer may then have none: there is no
    # update where all weights of a sample are 0.
    episodes: bool = False
    required_priority: str = ""  # of the updater, `UpdaterTraits.priority`; "": any
    batch_size: int = 0  # windows or episodes in a sample; 0: not declared
    sequence_length: int = 1  # consecutive samples, if the updater requires fewer
    # Whether it returns each step only once, soon after the policy has acted.
    is_on_policy: bool = False
    # The option, as messages name it, that has an effect only on recurrent networks;
    # "" if there is none.
    requires_recurrence: str = ""
    # A `rlcli.replays.datasets.recipe_dataset.Dataset`, whose steps have no extras.
    # They are added before the first unroll, unless the replay is offline or keeps it.
    dataset: Any = None
    # Whether it does not add them: `sample` gets (state, steps) in place of a state.
    keeps_dataset: bool = False
    # Whether it ignores the unrolls of the loop: `sample` gets the steps `[N, ...]` of
    # the data set in place of a state, and the environment of the loop is idle.
    is_offline: bool = False
    # The stack that observations must be, because it stores each frame once.
    frame_stack: FrameStack | None = None


class Replay(NamedTuple):
    """A replay buffer of raw steps.

    `count` is the number of unrolls added. It is the counter of the loop, without batch
    axis under `vmap` over seeds, so positions in the ring buffer have none either.
    """

    init: Callable[[Transition], ArrayTree]  # example unroll [T, B, ...] -> state
    draw: Callable[[Key], ArrayTree]  # key -> noise for one sample
    # (state, steps, count) -> state
    add: Callable[[ArrayTree, Transition, Int32[Traced, ""]], ArrayTree]
    # (state, count, noise) -> steps[T, N], weight[T, N], index; T is at least the
    # requested window. `extras["carry"]` may have one row, that of the first step.
    sample: Callable[..., tuple[Transition, Float[Array, "T N"], ArrayTree]]
    # (state, index, priority) -> state: called after each update, with the priority
    # that the updater reports
    reweigh: Callable[..., ArrayTree]
    traits: ReplayTraits = ReplayTraits()
    # (state, count, before, after) -> state, on the host: divides the state `[S, ...]`
    # of `before` devices among `after` devices. None: it cannot be divided anew.
    redivide: Callable[..., ArrayTree] | None = None
    # (state, count, most) -> the number of stored steps, and at most `most` of them,
    # oldest first and evenly spaced, `[N, ...]`: on the host. None: not known.
    contents: Callable[..., tuple[int, Transition]] | None = None


class Clock(NamedTuple):
    """The counters of a run, of which only `episodes` differs between seeds.

    In an update they are those before its unroll.
    """

    iteration: Int32[Array, "*S"]  # iterations finished
    steps: Float32[Array, "*S"]  # of one seed, over all its environments
    episodes: Float32[Array, "*S"]  # episodes finished
    updates: Int32[Array, "*S"]  # updates finished
    # Whether the metrics of this iteration are logged.
    compute_metrics: Bool[Array, "*S"]
    # How often the conditions of `schedules.Success` have held, by their keys. Only
    # training counts them.
    successes: Mapping[str, Int32[Array, "*S"]] = {}

    @staticmethod
    def zero(*seeds: int) -> Clock:
        """The clock at the start of a run, or one for each of a number of seeds."""
        integer, real = np.zeros(seeds, np.int32), np.zeros(seeds, np.float32)
        return Clock(integer, real, real, integer, np.zeros(seeds, bool))


class Inputs(NamedTuple):
    """What environment and agent are built with inside the program."""

    clock: Clock  # the time at which schedules are evaluated
    # The numbers of the recipe that are arguments of the program, such as
    # `optimizer.learning_rate`, by their places; {}: all are constants.
    numbers: Mapping[str, Float32[Array, "*S"]] = {}


START = Inputs(Clock.zero())  # for what depends neither on schedules nor on numbers


class Report(NamedTuple):
    """Priorities and metrics of one update."""

    # Of the rows in the replay, see `UpdaterTraits.priority`.
    priority: Float[Recorded, "*T B"]
    metrics: Mapping[str, Real[Recorded, ""]]


class UpdaterTraits(NamedTuple):
    """What an updater is and requires, as plain data: `assembly` compares it."""

    requires: tuple[str, ...] = ()  # the extras it reads
    # Consecutive samples that it requires of a replay, at least.
    sequence_length: int = 1
    priority: str = "td_error"  # the meaning of `Report.priority`, by any name
    gradient_steps: int = 1  # optimizer steps in one update
    # Requirements on the rows. The value is the option that has the requirement, as
    # messages name it; "" if there is none.
    requires_single_steps: str = ""  # rows of single steps: `Tracer.window` is 1
    requires_on_policy: str = ""  # no tracer with `is_off_policy` on rows of a replay
    # Whether `update` combines the values of all devices of `train.data_parallel` (see
    # `xla.data_axis`), as the gradient steps of `updaters.learner` do.
    is_data_parallel: bool = False
    # The axis of the environments in the state, see `AgentTraits.environment_axes`.
    environment_axes: ArrayTree = None
    # Whether its losses update the statistics of networks, see `Network.learn`.
    learns_statistics: bool = False
    # The replays it learns from. `on_policy`: those with `is_on_policy`, or any with a
    # tracer that corrects for earlier policies (`Tracer.is_off_policy`).
    replays: Literal["any", "on_policy", "none"] = "any"


class Updater(NamedTuple):
    """An algorithm: its policy, and the update of its parameters.

    `update(state, batch, weight, clock, key) -> state, Report`, where batch and weight
    `[T, B]` come from the tracer. `estimate(state, steps, key) -> Estimates`.
    """

    init: Callable[[Key], ArrayTree]
    policy: Policy
    update: Callable[..., tuple[ArrayTree, Report]]
    estimate: Callable[[ArrayTree, Transition, Key], Estimates]
    # The defaults are those of an `updaters.learner.Learner`.
    # state -> the part of it that the policy uses
    acting: Callable[[ArrayTree], ArrayTree] = lambda state: state.params
    # state -> the first failed update, or −1
    failed_at: Callable[[ArrayTree], Int32[Array, ""]] = lambda state: state.failed
    traits: UpdaterTraits = UpdaterTraits()
    # (state, unroll, before) -> state: updates running statistics with a new unroll,
    # after the updates of each iteration; `before` is the state before them. It is also
    # called with the steps of a data set, before the first update: `[N, 1, ...]` in an
    # offline agent, and nothing else; `[T, B, ...]` where a replay starts with them.
    observe: Callable[[ArrayTree, Transition, ArrayTree], ArrayTree] | None = None


class AgentTraits(NamedTuple):
    """What an agent is and requires, as plain data."""

    requires: tuple[str, ...] = ()  # the extras that unrolls store
    is_offline: bool = False  # whether it ignores the unrolls, see `ReplayTraits`
    # The stack that observations must be, see `ReplayTraits`.
    frame_stack: FrameStack | None = None
    # Which axis of the state the devices of `train.data_parallel` divide: a prefix of
    # its tree. None: all devices have the same values. 0 for a scalar: each device has
    # its own.
    environment_axes: ArrayTree = None


class AgentInside(NamedTuple):
    """What shows an agent outside of training."""

    learner: Callable[[ArrayTree], ArrayTree]  # state -> the state of its updater
    # `Updater.estimate`, of (learner, steps, key)
    estimate: Callable[[ArrayTree, Transition, Key], Estimates]
    # `Replay.contents`, of (state, iteration, unroll, data, most)
    contents: Callable[..., tuple[int, Transition]] | None = None
    # (example unroll, steps [N, ...]) -> the state of a replay that begins with them
    fill: Callable[[Transition, Transition], ArrayTree] | None = None


class Agent(NamedTuple):
    """A policy, tracer, updater and, for off-policy algorithms, a replay combined.

    `learn(state, steps, clock, noise, data=()) -> state, metrics` is called once an
    iteration, with the unroll `[T, B, ...]` of that iteration and the clock before it.
    `data` are the steps `[N, ...]` of the data set of a replay.
    """

    init: Callable[[Key, Transition], ArrayTree]  # (key, example unroll) -> state
    acting: Callable[[ArrayTree], ArrayTree]
    policy: Policy
    draw: Callable[[Key], ArrayTree]
    learn: Callable[..., tuple[ArrayTree, Mapping[str, Real[Array, ""]]]]
    count_updates: Callable[[Any], Any]  # iterations -> number of updates within them
    # state -> the first failed update, or −1
    failed_at: Callable[[ArrayTree], Int32[Array, ""]]
    traits: AgentTraits = AgentTraits()
    # (state, iteration, before, after) -> state, see `Replay.redivide`
    redivide: Callable[..., ArrayTree] | None = lambda state, *_: state
    inside: AgentInside | None = None
