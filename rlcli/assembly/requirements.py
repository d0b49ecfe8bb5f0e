"""Requirements: refuses incompatible parts, and runs that could never learn.

Requirements are data: `ReplayTraits`, `UpdaterTraits` and `Tracer` say what parts are
and require, and this module compares them once, when a setup is built. It knows no
option of any part.

An updater that requires the extra `carry` is recurrent. A replay whose factory has a
parameter `goal_reward` requires an environment with goals, and receives the
environment's `goal_reward`; one with `frame_stack` requires observations that are that
stack of frames. Wrappers that change what `goal_reward` or `frame_stack` describes drop
it (`types.wrap`). Declarations may be wrong, and a library's stack is not declared, so
`training.experiment` compares what such a replay rebuilds with a few steps of the
environment, before the run begins. `Tracer.gamma` is the discount factor for all other
parts that need one: the normalization of rewards, planning policies, learned models.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from rlcli import spaces
from rlcli.assembly.build_part import format_names
from rlcli.distributions import action_masks
from rlcli.environments.episode_info import RESERVED
from rlcli.errors import quote, suggest
from rlcli.loop.progress import Setup
from rlcli.networks.freezing import TORSO, torso_paths
from rlcli.networks.functions import statistics_group
from rlcli.recipe import DEFAULT, SHARED, Recipe
from rlcli.recipe.documents import Place
from rlcli.types import (
    Core,
    Environment,
    FrameStack,
    Network,
    ReplayTraits,
    TimeStep,
    Tracer,
    Updater,
    UpdaterTraits,
)
from rlcli.xla.numeric_limits import INT32_MAX
from rlcli.xla.tree_paths import describe_leaf, leaves_by_path

GOALS = {"achieved_goal", "desired_goal"}  # members of the observations with goals


def check_networks(
    recipe: Recipe, networks: Mapping[str, Network], updater: Updater
) -> None:
    """Refuses what `network`, `optimizer` and `freeze` name but the updater lacks.

    `networks` are those that it requests. A group without a network, such as the
    temperature of SAC, can still have an optimizer.
    """
    owner, known = f"updater {quote(recipe.updater.name)}", {*networks}
    is_needed = recipe.freeze or recipe.optimizer.keys() - known - {DEFAULT, SHARED}
    groups = _parameter_groups(updater) if is_needed else set()
    for section, names in (("network", known), ("optimizer", known | groups)):
        for name in getattr(recipe, section):
            if name not in (DEFAULT, SHARED, *names):
                message = f"{owner} has no function {quote(name)}"
                raise recipe.error((section, name), message, suggest(name, names))
    torsos = {path.partition("/")[0] for path in torso_paths(networks.values())}
    for name in recipe.freeze:
        group, slash, piece = name.partition("/")
        if not groups:
            message, hint = "does not learn by gradients", "remove `freeze`"
        elif group not in groups:
            message = f"has no parameters {quote(group)}"
            hint = suggest(group, groups)
        elif slash and (piece != TORSO or group not in torsos):
            message = f"has no part {quote(name)} of its parameters"
            parts = sorted({*groups, *(f"{each}/{TORSO}" for each in torsos)})
            hint = f"its parts are {format_names(parts)}"
        else:
            continue
        raise recipe.error(("freeze", name), f"{owner} {message}", hint)
    # No loss would update the statistics of batch normalization.
    names = [name for name, each in networks.items() if each.learn is not None]
    if names and not updater.traits.learns_statistics:
        raise recipe.error(
            ("network", "batch_norm"),
            f"network `{names[0]}` has `batch_norm`, but {owner} does not learn "
            "running statistics",
            "use `updater: crossq`, or `layer_norm: true`",
        )


def _parameter_groups(updater: Updater) -> set[str]:
    """The parameter groups of an updater whose state is a `Learner`."""
    state = jax.eval_shape(updater.init, jax.eval_shape(lambda: jax.random.key(0)))
    groups = set(getattr(state, "params", {}))
    return groups - set(map(statistics_group, groups))  # which have no optimizer


# The place in the recipe, the problem, and the remedy; the first one is the error.
_Conflicts = Iterator[tuple[Place, str, str]]


def check_parts(
    recipe: Recipe,
    num_envs: int,
    tracer: Tracer,
    updater: UpdaterTraits,
    replay: ReplayTraits | None,
) -> None:
    """Refuses parts that do not meet the requirements that other parts declare."""
    updater_name, tracer_name = recipe.updater.name, recipe.tracer.name
    name = recipe.replay.name if recipe.replay else ""

    def tracer_conflicts() -> _Conflicts:
        """A tracer whose rows do not fit the updater, or that never has the steps."""
        window, unroll = tracer.window or 1, recipe.train.unroll
        if tracer.window != 1 and updater.requires_single_steps:
            spans = f"{window:,} steps" if tracer.window else "whole episodes"
            yield (
                ("updater",),
                f"{updater.requires_single_steps} requires rows of single steps, but "
                f"the rows of tracer `{tracer_name}` span {spans}",
                "use `tracer: lambda_return`, whose rows are single steps",
            )
        steps = recipe.train.steps // (unroll * num_envs) * unroll
        if steps < window:
            min_steps = -(-window // unroll) * unroll * num_envs
            yield (
                ("tracer",),
                f"the agent would never learn: tracer `{tracer_name}` needs {window:,} "
                f"consecutive steps, but the run has {steps:,} of each environment",
                f"raise `train.steps` to at least {min_steps:,}",
            )
        if tracer.window is None and not (replay and replay.episodes):
            found = (
                f"replay `{name}` samples" if replay else "without a replay there are"
            )
            yield (
                ("tracer",),
                f"tracer `{tracer_name}` requires whole episodes, but {found} only "
                "parts of them",
                "use `replay: episodes`, which samples whole episodes",
            )

    def data_conflicts(replay: ReplayTraits) -> _Conflicts:
        """A replay, or a data set, of steps that the updater cannot learn from."""
        if updater.replays == "none":
            yield (
                ("replay",),
                f"updater `{updater_name}` learns from whole unrolls: it supports no "
                "replay",
                "`replay: null` removes it",
            )
        is_fitting = replay.is_on_policy or tracer.is_off_policy
        if updater.replays == "on_policy" and not is_fitting:
            yield (
                ("replay",),
                f"updater `{updater_name}` learns from actions of its current policy, "
                f"but replay `{name}` returns those of earlier policies, which tracer "
                f"`{tracer_name}` does not correct for",
                "`replay: null` removes the replay; updaters such as `v_trace` and "
                "`dqn` learn from one",
            )
        required = [(f"updater `{updater_name}`", extra) for extra in updater.requires]
        required += [(f"tracer `{tracer_name}`", extra) for extra in tracer.requires]
        for part, extra in required if replay.dataset else ():
            yield (
                ("replay",),
                f"{part} needs the `{extra}` of each step, which a data set does not "
                "have",
                "remove `memory` from the network"
                if extra == "carry"
                else "use `tracer: n_step`, or learn from an environment",
            )

    def capacity_conflicts(replay: ReplayTraits) -> _Conflicts:
        """A replay that is smaller than one sample, or too large.

        32-bit indices address its entries. A ring has room for one or two more unrolls,
        and a sum tree rounds up to whole nodes.
        """
        if replay.capacity < replay.batch_size:
            yield (
                ("replay",),
                f"replay `{name}` holds {replay.capacity:,} steps, fewer than the "
                f"{replay.batch_size:,} of one sample",
                f"raise its capacity to at least {replay.batch_size:,}, or lower its "
                "batch size",
            )
        max_capacity = INT32_MAX - 2 * recipe.train.unroll * num_envs - 32
        if replay.capacity > max_capacity:
            yield (
                ("replay",),
                f"replay `{name}` with a capacity of {replay.capacity:,} has more "
                "entries than 32-bit indices can address",
                f"lower its capacity to at most {max_capacity:,}",
            )

    def sample_conflicts(replay: ReplayTraits) -> _Conflicts:
        """A replay whose samples, options or priorities do not fit the updater."""
        is_recurrent = "carry" in updater.requires
        length = max(updater.sequence_length, replay.sequence_length)
        if is_recurrent and length == 1:  # no gradient would go back in time
            yield (
                ("network", "memory"),
                "a recurrent network learns from consecutive steps, but replay "
                f"`{name}` samples single ones",
                "use `replay: {name: sequences, length: 20}`, or remove `memory`",
            )
        if replay.requires_recurrence and not is_recurrent:
            yield (
                ("replay",),
                f"{replay.requires_recurrence} of replay `{name}` refreshes recurrent "
                f"state, but no network of updater `{updater_name}` has any",
                "remove it, or give the network a `memory`",
            )
        if replay.required_priority not in ("", updater.priority):
            yield (
                ("replay",),
                f"replay `{name}` requires the priority `{replay.required_priority}`, "
                f"which updater `{updater_name}` does not report",
                f"it reports `{updater.priority}`: set its option `priority`, if it "
                "has one, or choose another replay",
            )
        if tracer.is_off_policy and updater.requires_on_policy:
            option = updater.requires_on_policy
            yield (
                ("updater",),
                f"{option} cannot be used with tracer `{tracer_name}` and a replay: "
                "the tracer sets the advantage of actions that the policy no longer "
                f"selects to 0, and {option} would change it",
                f"remove {option} or `replay`",
            )

    def row_conflicts() -> _Conflicts:
        """A tracer over several rows that would see fewer at a time."""
        rows, source = recipe.train.unroll, "unrolls have"
        hint = f"raise `train.unroll` to at least {tracer.sequence_length}"
        if replay is not None:
            rows = max(updater.sequence_length, replay.sequence_length)
            source = f"samples of replay `{name}` have"
            hint = "use `replay: {name: sequences, length: 20}`"
        if rows < tracer.sequence_length:
            yield (
                ("tracer",),
                f"tracer `{tracer_name}` needs at least {tracer.sequence_length} "
                "consecutive steps to differ from a one-step return, but "
                f"{source} only {rows}",
                f"{hint}, or `tracer: n_step`",
            )

    conflicts = [tracer_conflicts()]
    if replay is not None:
        functions = data_conflicts, capacity_conflicts, sample_conflicts
        conflicts += [function(replay) for function in functions]
    for conflict in itertools.chain(*conflicts, row_conflicts()):
        raise recipe.error(*conflict)


def check_goals(recipe: Recipe, environment: Environment) -> Callable:
    """The `goal_reward` of the environment; refuses an environment without goals."""
    assert recipe.replay is not None  # a replay requires it
    members = spaces.members(environment.observation).keys()
    if environment.goal_reward is not None and members >= GOALS:
        return environment.goal_reward
    lacks = "has neither `goal_reward` nor `compute_reward`"
    if missing := sorted(GOALS - members):
        lacks = f"observes no {' and '.join(f'`{name}`' for name in missing)}"
    raise recipe.error(
        ("replay",),
        f"replay `{recipe.replay.name}` requires an environment whose reward is a "
        f"function of goals, but `{recipe.environment.name}` {lacks}",
        "use `BitFlip-v0`, `{name: PointRobot-v0, goals: true}`, goals of "
        "Gymnasium-Robotics or an environment of your own with `goal_reward`, without "
        "`each`, frame stacks, and wrappers that change observations or add to rewards",
    )


def check_frame_stack(
    recipe: Recipe, environment: Environment, replay: ReplayTraits | None
) -> None:
    """Refuses a replay that would rebuild observations from frames they do not have.

    On the host, a wrapper of the environment's library may have stacked the frames.
    """
    needed = replay and replay.frame_stack
    if not needed:
        return
    assert recipe.replay is not None  # `replay` was built from it
    found = environment.frame_stack
    if found is None and not environment.pure:
        return
    seen, _ = action_masks.split_mask(environment.observation)
    arrays = jax.tree.leaves(jax.eval_shape(lambda: spaces.zeros(seen)))
    if (
        found is not None
        and needed._replace(axis=found.axis) == found
        and all(needed.axis % each.ndim == found.axis % each.ndim for each in arrays)
    ):
        return
    name = quote(recipe.environment.name)
    raise recipe.error(
        ("replay",),
        f"replay `{recipe.replay.name}` stores frames of observations that are "
        f"{_describe_stack(needed)}, but those of {name} are "
        f"{_describe_stack(found) if found else 'no stacks'}",
        "stack them in the network, `preprocess: [{name: frame_stack, frames: "
        f"{needed.frames}}}]`, with the same options in the replay; or use "
        "`replay: uniform`",
    )


def _describe_stack(stack: FrameStack) -> str:
    padding = "the first frame repeated" if stack.padding == "repeat" else "zeros"
    return f"stacks of {stack.frames} along axis {stack.axis}, {padding} at the start"


def check_updates(recipe: Recipe, setup: Setup, updater: UpdaterTraits) -> None:
    """Refuses a run that ends before its first update, or has too many to count.

    The counters of optimizers are int32.
    """
    updates = setup.agent.count_updates(recipe.train.steps // setup.steps_per_iteration)
    if updates == 0:
        raise recipe.error(
            ("train", "steps"),
            f"the agent would never learn: the run ends after {recipe.train.steps:,} "
            "steps, before its first update",
            "raise `train.steps`, or change `train.start` and `train.updates`",
        )
    gradient_steps = updates * updater.gradient_steps
    if gradient_steps > INT32_MAX:
        raise recipe.error(
            ("updater",),
            f"updater `{recipe.updater.name}` makes {gradient_steps:,} gradient steps "
            f"in the run, but 32-bit counters only reach {INT32_MAX:,}",
            "lower `train.steps`, or the updater's "
            f"{updater.gradient_steps:,} gradient steps per update",
        )


def check_outputs(recipe: Recipe, core: Core) -> None:
    """Refuses an environment whose outputs do not match its declared spaces.

    Only traces shapes. Without this check, a mismatch would raise an error of JAX in
    some network, or no error at all.
    """
    name = f"environment `{recipe.environment.name}`"

    def refuse(method: str, problem: str) -> None:
        raise recipe.error(
            ("environment",),
            f"{name}: `{method}` returns {problem}",
            "`rlcli.types.TimeStep` defines what `step` returns, and the environment's "
            "`observation` defines its observations",
        )

    def compare(method: str, what: str, value: Any, expected: Any, source: str) -> None:
        expected_leaves, leaves = _describe_leaves(expected), _describe_leaves(value)
        for path in sorted(expected_leaves.keys() | leaves.keys()):
            if expected_leaves.get(path) != leaves.get(path):
                member = f" whose `{path}` is" if path else " that is"
                leaf = leaves.get(path, "missing")
                expected_leaf = expected_leaves.get(path, "nothing")
                refuse(method, f"{what}{member} {leaf}, but {source} {expected_leaf}")

    axes = (core.agents,) if core.agents else ()  # of a game: `Core.agents`

    def for_each_agent(tree: Any) -> Any:
        def broadcast(leaf: Any) -> Any:
            return np.broadcast_to(leaf, (*axes, *np.shape(leaf)))

        return jax.tree.map(broadcast, tree)

    observation, action, number = map(
        for_each_agent,
        (spaces.zeros(core.observation), spaces.zeros(core.action), np.float32(0)),
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    initial = jax.eval_shape(core.reset, key)
    if not isinstance(initial, tuple) or len(initial) != 2:
        refuse("reset", f"{type(initial).__name__}, expected (state, observation)")
    state, obs = initial
    declared = f"its space {spaces.describe(core.observation)} declares"
    compare("reset", "an observation", obs, observation, declared)
    noise = jax.eval_shape(core.draw, key)
    result = jax.eval_shape(core.step, state, action, noise)
    if not (
        isinstance(result, tuple)
        and len(result) == 2
        and isinstance(result[1], TimeStep)
    ):
        refuse("step", f"{type(result).__name__}, expected (state, TimeStep)")
    next_state, timestep = result
    compare("step", "a state", next_state, state, "`reset` returns")
    for field, expected in {
        "obs": observation,
        "next_obs": observation,
        "reward": number,
        "discount": number,
        "last": np.bool_(False),
    }.items():
        source = declared if field.endswith("obs") else "a TimeStep has"
        compare("step", f"a `{field}`", getattr(timestep, field), expected, source)
    for metric, leaf in timestep.info.items():
        if metric in RESERVED:
            what = "which rows of metrics use for another field"
            refuse("step", f"an `info` with `{metric}`, {what}")
        if leaf.shape:
            described = describe_leaf(leaf)
            refuse("step", f"an `info` whose `{metric}` is {described}, not a number")


def _describe_leaves(tree: Any) -> dict[str, str]:
    """Dtype and shape of every leaf, by tree path."""
    return {path: describe_leaf(leaf) for path, leaf in leaves_by_path(tree).items()}
