"""Checks: refuses incompatible parts, and runs that could never learn."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from rlcli import registry, spaces
from rlcli.errors import quote, suggest
from rlcli.loop.progress import Setup
from rlcli.recipe import DEFAULT, SHARED, Recipe
from rlcli.types import Clock, Environment, Replay, TimeStep, Tracer
from rlcli.xla.numeric_limits import INT32_MAX
from rlcli.xla.tree_paths import leaves_by_path


def check_names(recipe: Recipe, used_names: set[str], groups: set[str]) -> None:
    """Refuses networks and optimizers for functions that the updater does not have.

    `groups` are the updater's parameter groups. Some are not functions, but have an
    optimizer.
    """
    for section, known_names in (
        ("network", used_names),
        ("optimizer", used_names | groups),
    ):
        for name in getattr(recipe, section):
            if name not in (DEFAULT, SHARED, *known_names):
                raise recipe.error(
                    (section, name),
                    f"updater {quote(recipe.updater.name)} has no function "
                    f"{quote(name)}",
                    suggest(name, known_names),
                )


def check_episodes(recipe: Recipe, tracer: Tracer, replay: Replay | None) -> None:
    """Refuses a tracer of whole episodes where only parts of episodes are available."""
    if tracer.window is not None or (replay is not None and replay.episodes):
        return
    name = recipe.replay.name if recipe.replay else ""
    samples = f"replay `{name}` samples" if replay else "without a replay there are"
    raise recipe.error(
        ("tracer",),
        f"tracer `{recipe.tracer.name}` requires whole episodes, but {samples} only "
        "parts of them",
        "use `replay: episodes`, which samples whole episodes",
    )


def check_priority(recipe: Recipe, replay: Replay) -> None:
    """Refuses a replay that needs another priority than the updater reports."""
    required_priority = replay.required_priority
    assert recipe.replay is not None  # `replay` was built from it
    if required_priority in ("", recipe.updater.options.get("priority", "td_error")):
        return
    options = registry.options(registry.find("updater", recipe.updater.name).factory)
    raise recipe.error(
        ("replay",),
        f"replay `{recipe.replay.name}` requires the priority `{required_priority}`, "
        f"which updater `{recipe.updater.name}` does not report",
        f"set `updater.priority: {required_priority}`" if "priority" in options else "",
    )


def check_capacity(recipe: Recipe, replay: Replay, visit: int) -> None:
    """Refuses a replay with more entries than 32-bit indices can address.

    `visit` is the number of steps of an unroll. A ring has room for one or two more,
    and a sum tree rounds up to whole nodes.
    """
    max_capacity = INT32_MAX - 2 * visit - 32
    if replay.capacity <= max_capacity:
        return
    assert recipe.replay is not None  # `replay` was built from it
    raise recipe.error(
        ("replay", "capacity"),
        f"replay `{recipe.replay.name}` with a capacity of {replay.capacity:,} has "
        "more entries than 32-bit indices can address",
        f"lower `replay.capacity` to at most {max_capacity:,}",
    )


def check_gradient_steps(recipe: Recipe, num_envs: int) -> None:
    """Refuses more gradient steps than the int32 counters of optimizers can count."""
    options, train = recipe.updater.options, recipe.train
    steps_per_update = options.get("epochs", 1) * options.get("minibatches", 1)
    steps = steps_per_update * (train.steps // (train.unroll * num_envs))
    if steps > INT32_MAX:
        raise recipe.error(
            ("updater", "epochs"),
            f"updater `{recipe.updater.name}` makes {steps:,} gradient steps in the "
            f"run, but 32-bit counters only reach {INT32_MAX:,}",
            "lower `updater.epochs`, `updater.minibatches` or `train.steps`",
        )


def check_rows(recipe: Recipe, tracer: Tracer) -> None:
    """Refuses `n_step_entropy` with a tracer whose rows span several steps.

    The entropies are summed from row to row (`updaters.regularizers.bonus`). A row of
    several steps would count them twice.
    """
    regularizers = recipe.updater.options.get("regularizers", ())
    if tracer.window == 1 or all(
        regularizer["name"] != "n_step_entropy" for regularizer in regularizers
    ):
        return
    spans = "whole episodes" if tracer.window is None else f"{tracer.window:,} steps"
    raise recipe.error(
        ("updater", "regularizers"),
        "regularizer `n_step_entropy` requires rows of single steps, but the rows of "
        f"tracer `{recipe.tracer.name}` span {spans}",
        "use `tracer: lambda_return`, whose rows are single steps",
    )


def check_advantage(recipe: Recipe, tracer: Tracer, replay: Replay | None) -> None:
    """Refuses to normalize the advantages of an off-policy tracer.

    A replay contains actions that the policy no longer selects. Such a tracer gives
    them an advantage of about 0. Minus the mean, it would reinforce or suppress them.
    """
    is_normalizing = recipe.updater.options.get("normalize_advantage")
    if replay is None or not is_normalizing or "log_prob" not in tracer.requires:
        return
    raise recipe.error(
        ("updater", "normalize_advantage"),
        "`normalize_advantage` cannot be used with a replay: tracer "
        f"`{recipe.tracer.name}` gives actions that the policy never selects an "
        "advantage of 0, which normalization would change",
        "remove `updater.normalize_advantage` or `replay`",
    )


def check_window(recipe: Recipe, window: int, num_envs: int) -> None:
    """Refuses a tracer whose window is longer than the whole run."""
    unroll = recipe.train.unroll
    steps = recipe.train.steps // (unroll * num_envs) * unroll
    if steps < window:
        min_steps = -(-window // unroll) * unroll * num_envs
        raise recipe.error(
            ("tracer",),
            f"the agent would never learn: tracer `{recipe.tracer.name}` needs "
            f"{window:,} consecutive steps, but the run has {steps:,} of each "
            "environment",
            f"raise `train.steps` to at least {min_steps:,}",
        )


def check_updates(recipe: Recipe, setup: Setup) -> None:
    """Refuses a run that ends before its first update."""
    _, agent = setup.parts(Clock.zero())
    iterations = recipe.train.steps // setup.steps
    if agent.updates(iterations) == 0:
        raise recipe.error(
            ("train", "steps"),
            f"the agent would never learn: the run ends after {recipe.train.steps:,} "
            "steps, before its first update",
            "raise `train.steps`, or change `train.start` and `train.updates`",
        )


def check_answers(recipe: Recipe, core: Environment) -> None:
    """Refuses a core whose `reset` or `step` does not match its declared spaces.

    Only traces shapes. Without this check, a mismatch causes an error of JAX in some
    network, or none at all.
    """
    name = f"environment `{recipe.environment.name}`"

    def refuse(method: str, problem: str) -> None:
        raise recipe.error(
            ("environment",),
            f"{name} returns from `{method}` {problem}",
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

    observation, action = map(spaces.zeros, (core.observation, core.action))
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
        "reward": np.float32(0),
        "discount": np.float32(0),
        "last": np.bool_(False),
    }.items():
        source = declared if field.endswith("obs") else "a TimeStep has"
        compare("step", f"a `{field}`", getattr(timestep, field), expected, source)
    for metric, leaf in timestep.info.items():
        if leaf.shape:
            described = _describe_leaf(leaf)
            refuse("step", f"an `info` whose `{metric}` is {described}, not a number")


def _describe_leaves(tree: Any) -> dict[str, str]:
    """Dtype and shape of every leaf, by tree path."""
    return {path: _describe_leaf(leaf) for path, leaf in leaves_by_path(tree).items()}


def _describe_leaf(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"
