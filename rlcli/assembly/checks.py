"""Refuses what cannot go together, or could never learn anything."""

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

    `groups` are those of its parameters: some are no functions, but have an optimizer.
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
    """Refuses a tracer of whole episodes where there are parts of them alone."""
    if tracer.window is not None or (replay is not None and replay.episodes):
        return
    name = recipe.replay.name if recipe.replay else ""
    hands = f"replay `{name}` hands out" if replay else "without a replay there are"
    raise recipe.error(
        ("tracer",),
        f"tracer `{recipe.tracer.name}` looks at whole episodes, and {hands} parts of "
        "them",
        "`replay: episodes` hands out whole ones",
    )


def check_priority(recipe: Recipe, replay: Replay) -> None:
    """Refuses priorities that mean something else than the updater reports."""
    required_priority = replay.priority
    assert recipe.replay is not None  # there is the one that was made of it
    if required_priority in ("", recipe.updater.options.get("priority", "td_error")):
        return
    options = registry.options(registry.find("updater", recipe.updater.name).factory)
    raise recipe.error(
        ("replay",),
        f"replay `{recipe.replay.name}` goes by `{required_priority}`, and updater "
        f"`{recipe.updater.name}` reports something else",
        f"set `updater.priority: {required_priority}`" if "priority" in options else "",
    )


def check_capacity(recipe: Recipe, replay: Replay, visit: int) -> None:
    """Refuses a replay whose entries 32-bit indices cannot count.

    `visit` is how many steps an unroll has; a ring keeps room for one or two more, and
    a sum tree rounds up to whole nodes.
    """
    most = INT32_MAX - 2 * visit - 32
    if replay.capacity <= most:
        return
    assert recipe.replay is not None  # there is the one that was made of it
    raise recipe.error(
        ("replay", "capacity"),
        f"replay `{recipe.replay.name}` with a capacity of {replay.capacity:,} has "
        "more entries than 32-bit indices count",
        f"lower `replay.capacity` to at most {most:,}",
    )


def check_gradient_steps(recipe: Recipe, num_envs: int) -> None:
    """Refuses more gradient steps than optimizers count: their counters are int32."""
    options, train = recipe.updater.options, recipe.train
    each = options.get("epochs", 1) * options.get("minibatches", 1)
    steps = each * (train.steps // (train.unroll * num_envs))
    if steps > INT32_MAX:
        raise recipe.error(
            ("updater", "epochs"),
            f"updater `{recipe.updater.name}` makes {steps:,} gradient steps in the "
            f"run, and 32-bit counters count to {INT32_MAX:,}",
            "lower `updater.epochs`, `updater.minibatches` or `train.steps`",
        )


def check_rows(recipe: Recipe, tracer: Tracer) -> None:
    """Refuses later entropies in the return where a row is more than a single step.

    They are added up from row to row (`updaters.regularizers.bonus`); a row that sums
    up several steps has counted them already, and ends where the next one has not.
    """
    regularizers = recipe.updater.options.get("regularizers", ())
    if tracer.window == 1 or all(
        regularizer["name"] != "n_step_entropy" for regularizer in regularizers
    ):
        return
    spans = "whole episodes" if tracer.window is None else f"{tracer.window:,} steps"
    raise recipe.error(
        ("updater", "regularizers"),
        "regularizer `n_step_entropy` wants rows of single steps, and those of tracer "
        f"`{recipe.tracer.name}` span {spans}",
        "`tracer: lambda_return` looks further by single steps",
    )


def check_advantage(recipe: Recipe, tracer: Tracer, replay: Replay | None) -> None:
    """Refuses to centre advantages that say who acted.

    In a replay there are actions that the policy has given up. Such a tracer gives them
    an advantage of about 0; less the mean they would be learnt, or unlearnt for ever.
    """
    is_normalizing = recipe.updater.options.get("normalize_advantage")
    if replay is None or not is_normalizing or "log_prob" not in tracer.requires:
        return
    raise recipe.error(
        ("updater", "normalize_advantage"),
        "`normalize_advantage` cannot go with a replay: by tracer "
        f"`{recipe.tracer.name}` what the policy never does has an advantage of 0, and "
        "has to keep it",
        "leave out `updater.normalize_advantage`, or `replay`",
    )


def check_window(recipe: Recipe, window: int, num_envs: int) -> None:
    """Refuses a tracer that looks further than the whole run is long."""
    unroll = recipe.train.unroll
    steps = recipe.train.steps // (unroll * num_envs) * unroll
    if steps < window:
        min_steps = -(-window // unroll) * unroll * num_envs
        raise recipe.error(
            ("tracer",),
            f"nothing would be learnt: tracer `{recipe.tracer.name}` needs {window:,} "
            f"steps in a row, and the run has {steps:,} of each environment",
            f"raise `train.steps` to at least {min_steps:,}",
        )


def check_updates(recipe: Recipe, setup: Setup) -> None:
    """Refuses a run that ends before its first update."""
    _, agent = setup.parts(Clock.zero())
    iterations = recipe.train.steps // setup.steps
    if agent.updates(iterations) == 0:
        raise recipe.error(
            ("train", "steps"),
            f"nothing would be learnt: the run ends after {recipe.train.steps:,} "
            "steps, before its first update",
            "`train.start` and `train.updates` say when that comes",
        )


def check_answers(recipe: Recipe, core: Environment) -> None:
    """Refuses a core whose `reset` or `step` returns what its spaces do not declare.

    Traced with shapes alone. Without this, a misfit shows as an error of JAX in some
    network, or not at all.
    """
    name = f"environment `{recipe.environment.name}`"

    def refuse(method: str, problem: str) -> None:
        raise recipe.error(
            ("environment",),
            f"{name} returns from `{method}` {problem}",
            "`rlcli.types.TimeStep` says what a step returns, and the environment's "
            "`observation` what an observation is",
        )

    def compare(method: str, what: str, found: Any, expected: Any, why: str) -> None:
        ours, theirs = _texts(expected), _texts(found)
        for path in sorted(ours.keys() | theirs.keys()):
            if ours.get(path) != theirs.get(path):
                member = f" whose `{path}` is" if path else " that is"
                is_there, wanted = (
                    theirs.get(path, "missing"),
                    ours.get(path, "nothing"),
                )
                refuse(method, f"{what}{member} {is_there}, where {why} {wanted}")

    observation, action = map(spaces.zeros, (core.observation, core.action))
    key = jax.eval_shape(lambda: jax.random.key(0))
    begun = jax.eval_shape(core.reset, key)
    if not isinstance(begun, tuple) or len(begun) != 2:
        refuse("reset", f"{type(begun).__name__}, where (state, observation) is due")
    state, obs = begun
    declared = f"its space {spaces.describe(core.observation)} has"
    compare("reset", "an observation", obs, observation, declared)
    noise = jax.eval_shape(core.draw, key)
    answer = jax.eval_shape(core.step, state, action, noise)
    if not (
        isinstance(answer, tuple)
        and len(answer) == 2
        and isinstance(answer[1], TimeStep)
    ):
        refuse("step", f"{type(answer).__name__}, where (state, TimeStep) is due")
    after, timestep = answer
    compare("step", "a state", after, state, "`reset` returns")
    for field, expected in {
        "obs": observation,
        "next_obs": observation,
        "reward": np.float32(0),
        "discount": np.float32(0),
        "last": np.bool_(False),
    }.items():
        why = declared if field.endswith("obs") else "a TimeStep has"
        compare("step", f"a `{field}`", getattr(timestep, field), expected, why)
    for logged, each in timestep.info.items():
        if each.shape:
            refuse("step", f"an `info` whose `{logged}` is {_text(each)}, no number")


def _texts(tree: Any) -> dict[str, str]:
    """Dtype and shape of every leaf, by tree path."""
    return {path: _text(leaf) for path, leaf in leaves_by_path(tree).items()}


def _text(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"
