"""Memory usage: estimates what a run or an evaluation needs before it allocates.

Sizes are computed from shapes. They are lower bounds: for example the arrays that an
environment's library allocates itself are not included.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlcli import registry
from rlcli.loop import Loop
from rlcli.loop.evaluator import Evaluator, parallel_environments
from rlcli.loop.progress import AXES, Progress, Setup
from rlcli.loop.seeds import resize_seeds
from rlcli.recipe import DEFAULT, Recipe
from rlcli.types import ArrayTree
from rlcli.xla.machine import format_size
from rlcli.xla.temporaries import tree_bytes

COMPILER = 200 * 2**20  # bytes that XLA needs to compile a run's program, at least
_HOST_ENVIRONMENT = 3 * 2**10  # bytes of a Gymnasium environment in this process …
_PROCESS = 21 * 2**20  # … and of one in its own process
_ROW = 10  # bytes of the smallest row: reward, discount, and two flags
_ENVIRONMENT = 16  # bytes of the smallest environment: its episode's return and length


class Item(NamedTuple):
    """The memory of one component."""

    name: str
    size: int  # bytes
    detail: str = ""
    # The options that change the size, the most effective first, with their values:
    # None if it does not depend linearly on them.
    options: Mapping[str, int | None] = MappingProxyType({})
    on_host: bool = False  # in host memory even if an accelerator computes


def least_memory(recipe: Recipe, seeds: int) -> list[Item]:
    """The memory that a run needs by the sizes in its recipe.

    A lower bound that builds nothing: a recipe may request 10¹² environments.
    """
    train, num_envs = recipe.train, recipe.num_envs
    count = {"environment.num_envs": num_envs, "train.seeds": seeds}
    items = [Item("environments", seeds * num_envs * _ENVIRONMENT, "", count)]
    if train.unroll > 1:
        size = seeds * num_envs * train.unroll * _ROW
        items.append(Item("unroll", size, "", {"train.unroll": train.unroll, **count}))
    if recipe.replay is not None:
        capacity = recipe.replay_capacity
        options = {"replay.capacity": capacity, "train.seeds": seeds}
        items.append(Item("replay", seeds * capacity * _ROW, "", options))
    return [*items, *_host_environments(recipe, seeds, num_envs)]


def run_memory(recipe: Recipe, setup: Setup, loop: Loop) -> list[Item]:
    """The memory of a run; traces its program without allocating."""
    progress = resize_seeds(len(setup.padded_seeds), loop.shapes(), AXES)
    items = [
        *_state(recipe, setup, progress),
        *_host_environments(recipe, len(setup.seeds), recipe.num_envs),
        *_program(recipe, setup, loop),
        Item("compiler", COMPILER, on_host=True),
    ]
    items += _dataset(setup)
    if recipe.train.evaluate.every:
        items.append(_evaluation(recipe, setup, progress))
    if is_accelerated():  # a checkpoint copies everything to the host
        options = max(items, key=lambda item: item.size).options
        items.append(Item("checkpoint", tree_bytes(progress), "", options, True))
    return items


def _state(recipe: Recipe, setup: Setup, progress: Progress) -> Iterator[Item]:
    """The state of a run."""
    seeds = len(setup.padded_seeds)
    seeds_noun, repeated = _count_noun(seeds, "seed"), seeds - len(setup.seeds)
    if repeated:
        seeds_noun += f" ({repeated} repeated, for {setup.devices} devices)"
    state, count = progress.agent, _counts(recipe, setup)
    replay, tail = getattr(state, "replay", ()), getattr(state, "tail", ())
    size = tree_bytes(state) - tree_bytes((replay, tail))
    yield Item(
        "parameters and optimizer",
        size,
        f"{seeds_noun} of {format_size(size / seeds)}",
        {**dict.fromkeys(_network_sizes(recipe)), "train.seeds": seeds},
    )
    if recipe.replay is not None and not setup.agent.traits.is_offline:
        size, capacity = tree_bytes(replay), recipe.replay_capacity
        row = format_size(size / seeds / max(1, capacity))
        yield Item(
            "replay",
            size,
            f"{seeds_noun} × {capacity:,} rows of {row}",
            {"replay.capacity": capacity, "train.seeds": seeds},
        )
    size = _environment_bytes(progress)
    size_each = format_size(size / seeds / recipe.num_envs)
    detail = f"{seeds_noun} × {recipe.num_envs:,} of {size_each}"
    yield Item("environments", size, detail, count)
    detail = f"{seeds_noun} × {setup.unroll:,} steps of "
    detail += _count_noun(recipe.num_envs, "environment")
    options = {"train.unroll": setup.unroll, **count}
    size = tree_bytes((progress.unroll, tail))
    yield Item("unroll", size, detail, options)


def _dataset(setup: Setup) -> Iterator[Item]:
    """The memory of a data set: a copy for the program, and the one that was read."""
    steps = setup.data()
    if not jax.tree.leaves(steps):
        return
    size, rows = tree_bytes(steps), len(steps.reward)
    detail = f"{rows:,} steps of {format_size(size / rows)}"
    yield Item("data set", setup.devices * size, detail)
    yield Item("data set as read", size, "", on_host=True)


def _program(recipe: Recipe, setup: Setup, loop: Loop) -> Iterator[Item]:
    """The memory of the compiled program: random numbers and temporaries."""
    draw, seed = setup.draw_noise_block, jax.ShapeDtypeStruct((), jnp.uint32)
    # Of a block of steps: of environments, policy and updates.
    sizes = map(tree_bytes, jax.eval_shape(draw, seed, jnp.int32(0)))
    step, act, learn = (len(setup.seeds) * size for size in sizes)
    count = _counts(recipe, setup)
    batch = _batch_size(recipe)
    noise = step + act + learn
    options = {**batch, "train.seeds": len(setup.seeds)} if batch else count
    yield Item("random numbers", noise, "", options if learn > noise / 2 else count)
    rest = max(0, loop.temporary_bytes() - noise)
    networks = dict.fromkeys(_network_sizes(recipe))
    rows = batch or {"train.unroll": setup.unroll, **count}
    # Gradients have the size of the parameters; larger temporaries grow with the rows.
    is_mostly_gradients = rest < 4 * tree_bytes(_acting(setup, loop.shapes()))
    options = {**networks, **rows} if is_mostly_gradients else {**rows, **networks}
    options = {**options, "train.seeds": len(setup.seeds)}
    yield Item("temporaries of the program", rest, "", options)


def _evaluation(recipe: Recipe, setup: Setup, progress: Progress) -> Item:
    """The memory of an evaluation between two chunks."""
    episodes, seeds = recipe.train.evaluate.episodes, len(setup.seeds)
    num_envs = parallel_environments(episodes, _is_adapter(recipe))
    # The policy on host and device, the old and the new best policy; returns and
    # lengths of all episodes, before and after a step.
    policies = 4 * tree_bytes(_acting(setup, progress))
    episode_bytes = 16 * seeds * episodes
    episode_bytes += _environment_bytes(progress) * num_envs // recipe.num_envs
    options = {"train.evaluate.episodes": episodes, "train.seeds": seeds}
    if policies > episode_bytes:
        networks = dict.fromkeys(_network_sizes(recipe))
        options = {**networks, "train.seeds": seeds}
    return Item("evaluation", policies + episode_bytes, "", options, on_host=True)


def evaluator_memory(
    recipe: Recipe, evaluator: Evaluator, acting: ArrayTree
) -> list[Item]:
    """The memory of an evaluation of the policy `acting`, beyond reading its file."""
    shapes, temporaries = evaluator.shapes(acting)
    size = tree_bytes(shapes)
    seeds, num_envs = evaluator.seeds, evaluator.environment.num_envs
    detail = f"{_count_noun(seeds, 'seed')} × {num_envs:,} of "
    detail += format_size(size / seeds / num_envs)
    networks, sizes = dict.fromkeys(_network_sizes(recipe)), _environment_sizes(recipe)
    options = dict.fromkeys({**sizes, "--episodes": None})
    return [
        Item("policy", tree_bytes(acting), "", networks),
        Item("environments", size, detail, options),
        *_host_environments(recipe, seeds, num_envs),
        Item("temporaries of the program", temporaries, "", {**networks, **options}),
    ]


def _acting(setup: Setup, progress: Progress) -> ArrayTree:
    """The shapes of the acting state of the policies."""
    return jax.eval_shape(setup.agent.acting, progress.agent)


def _host_environments(recipe: Recipe, seeds: int, num_envs: int) -> list[Item]:
    """The memory of environments of other libraries, estimated before they exist."""
    if not _is_adapter(recipe):
        return []
    has_processes = recipe.environment.options.get("vectorization") == "async"
    size_each = _PROCESS if has_processes else _HOST_ENVIRONMENT
    what = "processes" if has_processes else "environments"
    options = {"environment.num_envs": num_envs, "train.seeds": seeds}
    detail = f"{_count_noun(seeds, 'seed')} × {num_envs:,}"
    size = seeds * num_envs * size_each
    return [Item(f"{what} on the host", size, detail, options, on_host=True)]


def _environment_bytes(progress: Progress) -> int:
    """Bytes of the environments, their actions and their statistics."""
    return tree_bytes(progress._replace(unroll=(), agent=()))


def _is_adapter(recipe: Recipe) -> bool:
    part = recipe.environment
    return bool(registry.find(part.kind, part.name).facts.get("adapter"))


def _counts(recipe: Recipe, setup: Setup) -> dict[str, int | None]:
    """The options that multiply environments, with their values."""
    return {"environment.num_envs": recipe.num_envs, "train.seeds": len(setup.seeds)}


def _batch_size(recipe: Recipe) -> dict[str, int | None]:
    if recipe.replay is None or "batch_size" not in recipe.replay.options:
        return {}
    value = recipe.replay.options["batch_size"]
    return {"replay.batch_size": value if isinstance(value, int) else None}


def recipe_sizes(recipe: Recipe) -> dict[str, int | None]:
    """The options of a recipe that may be sizes, with their values."""
    return {
        **_environment_sizes(recipe),
        **_network_sizes(recipe),
        **_sizes_in("tracer", recipe.tracer.options),
        **_sizes_in("replay", recipe.replay.options if recipe.replay else {}),
        "environment.num_envs": recipe.num_envs,
        "train.unroll": recipe.train.unroll,
    }


def _environment_sizes(recipe: Recipe) -> dict[str, int | None]:
    """The options of the recipe's environment that may be sizes, with their values."""
    return _sizes_in("environment", recipe.environment.options)


def _network_sizes(recipe: Recipe) -> dict[str, int | None]:
    """The options of the recipe's networks that may be sizes, with their values."""
    sizes: dict[str, int | None] = {}
    for name, spec in recipe.network.items():
        prefix = "network" if name == DEFAULT else f"network.{name}"
        sizes |= _sizes_in(prefix, spec.part.options if spec.part else {})
        sizes |= _sizes_in(
            f"{prefix}.memory", spec.memory.options if spec.memory else {}
        )
        sizes |= _sizes_in(f"{prefix}.head", spec.head)
    return sizes


def _sizes_in(place: str, options: Mapping[str, Any]) -> dict[str, int | None]:
    """The largest integer in each option that has one, by the name of the option."""
    sizes: dict[str, int | None] = {}
    for name, value in options.items():
        values = value if isinstance(value, list | tuple) else [value]
        numbers = [number for number in values if type(number) is int]
        if numbers:
            sizes[f"{place}.{name.removesuffix('_')}"] = max(numbers)
    return sizes


def _count_noun(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def is_accelerated() -> bool:
    """Whether programs run on an accelerator instead of the CPU."""
    return jax.default_backend() != "cpu"
