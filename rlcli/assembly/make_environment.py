"""Environments: builds the environment of a recipe, with wrappers and frame stack."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from rlcli import registry, schedules
from rlcli.assembly import out_of_memory
from rlcli.assembly.build_part import build_part, explain_user_errors
from rlcli.assembly.numbers import with_numbers
from rlcli.assembly.preprocessing import environment_preprocessing
from rlcli.assembly.requirements import check_outputs
from rlcli.environments.canonical_border import canonical_environment
from rlcli.environments.episode_info import log_info
from rlcli.environments.level_sampling import LevelSampler, level_sampler
from rlcli.environments.observation_image import with_render
from rlcli.environments.randomization import randomize
from rlcli.environments.vector import values_at, vector
from rlcli.environments.wrappers.wrapped_host import wrap_host
from rlcli.preprocessing.frame_stack import stack_frames
from rlcli.recipe import Part, Recipe
from rlcli.recipe.documents import Place
from rlcli.types import START, Clock, Core, Environment, Inputs


def build_environment(
    recipe: Recipe, seeds: int, *, rendering: bool = False
) -> Environment:
    """Builds only the environment, that of the start of a run."""
    with out_of_memory.limit_building(recipe), explain_user_errors(recipe):
        return environment_factory(recipe, seeds, rendering)(START)


def group_size(recipe: Recipe) -> int:
    """The number of environments that belong together, such as the agents of a game.

    The fact `group` of an adapter is a function of its id and options that counts them.
    """
    part = recipe.environment
    facts = registry.find(part.kind, part.name).facts
    if count_group := facts.get("group"):
        return count_group(part.name.partition("/")[2], part.options["options"])
    if facts.get("adapter"):
        return 1
    with out_of_memory.limit_building(recipe), explain_user_errors(recipe):
        return build_core(recipe, START.clock, values_at(recipe.copies, 0)).agents or 1


def check_environment(recipe: Recipe) -> None:
    """Refuses a compiled environment that does not match its declared spaces."""
    if registry.find("environment", recipe.environment.name).facts.get("adapter"):
        return  # on the host: the results of its steps are checked at run time
    check_outputs(recipe, build_core(recipe, START.clock, values_at(recipe.copies, 0)))


def environment_factory(
    recipe: Recipe, seeds: int, rendering: bool
) -> Callable[[Inputs], Environment]:
    """A function that builds the vectorized environment for given inputs."""
    part, frame_steps = recipe.environment, environment_preprocessing(recipe)
    if registry.find(part.kind, part.name).facts.get("adapter"):
        host_env = _build_host(recipe, seeds, rendering)
        host_env = stack_frames(host_env, frame_steps)
        return lambda inputs: host_env

    if recipe.train.on_error == "restart":
        raise recipe.error(
            ("train", "on_error"),
            f"`on_error: restart` has no effect: environment `{part.name}` runs in the "
            "compiled program, which cannot raise an exception",
            "remove `on_error`",
        )
    limit = recipe.time_limit
    assert limit != "default"  # only adapters have a default limit

    def environment(inputs: Inputs) -> Environment:
        now = with_numbers(recipe, inputs.numbers)
        each = {name: jnp.asarray(values) for name, values in recipe.copies.items()}
        envs = vector(
            lambda values: build_canonical_core(now, inputs.clock, values, rendering),
            recipe.num_envs,
            time_limit=limit,
            each=each,
            levels=build_level_sampler(recipe),
            rendering=rendering,
        )
        envs = log_info(envs, recipe.info, f"environment `{part.name}`")
        return stack_frames(envs, frame_steps)

    return environment


def build_level_sampler(recipe: Recipe) -> LevelSampler | None:
    """The sampler of the levels that episodes play; None if each episode is new."""
    levels = recipe.levels
    return levels and level_sampler(
        levels.count,
        levels.first,
        by_regret=levels.by == "regret",
        temperature=levels.temperature,
        staleness=levels.staleness,
    )


def _build_host(recipe: Recipe, seeds: int, rendering: bool) -> Environment:
    """The environment of an adapter with its wrappers, in canonical spaces."""
    part, label = recipe.environment, f"environment `{recipe.environment.name}`"
    _refuse_schedules(recipe, part, ("environment",))
    inner: list[Any] = []  # wrappers of single environments, which their adapter calls
    outer: list[tuple[Place, Part]] = []
    for index, wrapper in enumerate(recipe.wrappers):
        place = ("environment", "wrappers", index)
        _refuse_schedules(recipe, wrapper, place)
        if "library" in registry.find("wrapper", wrapper.name).facts:
            inner.append(build_part(wrapper, START.clock, recipe, place=place))
        else:
            outer.append((place, wrapper))
    offers = {
        "num_envs": recipe.num_envs,
        "seeds": seeds,
        "time_limit": recipe.time_limit,
        "timeout": recipe.timeout,
        "rendering": rendering,
        "random_numbers": recipe.random_numbers,
        "wrappers": tuple(inner),
    }
    env = _restart_on_error(recipe, build_part(part, START.clock, recipe, offers))
    env = log_info(env, recipe.info, label)
    if env.external is None:  # not made by `host_environment`
        env = canonical_environment(env, label)
    if not outer:
        return env
    if env.pure:
        message = f"{label} is a compiled vector: it takes no `wrappers`"
        raise recipe.error(outer[0][0], message, "remove `wrappers`")

    def wrap_core(core: Core) -> Core:
        for place, wrapper in outer:
            offers = {"core": core}
            core = build_part(wrapper, START.clock, recipe, offers, place=place)
        return core

    return wrap_host(env, wrap_core, seeds, label)


def _refuse_schedules(recipe: Recipe, part: Part, place: Place) -> None:
    """Refuses schedules as options of a part that runs on the host."""
    for name, value in part.options.items():
        if isinstance(value, schedules.Schedule):
            raise recipe.error(
                (*place, name),
                f"environment `{recipe.environment.name}` runs on the host: `{name}` "
                "cannot follow a schedule",
                f"set `{name}` to a number",
            )


def _restart_on_error(recipe: Recipe, environment: Environment) -> Environment:
    """The environment, restarted where it fails if `train.on_error` says so."""
    if recipe.train.on_error == "stop":
        return environment
    host = environment.host
    if host is None or host.remake is None:
        raise recipe.error(
            ("train", "on_error"),
            f"environment `{recipe.environment.name}` cannot be restarted",
            "use `on_error: stop`, or build the environment with `host_environment`",
        )
    return host.remake(is_restarting=True)


def build_core(
    recipe: Recipe, clock: Clock, values: Mapping[str, Any], rendering: bool = False
) -> Core:
    """One environment with its wrappers, in its own units.

    `values` are its options in `each`, apart from those that its episodes draw.
    """

    def core_of(drawn: Mapping[str, Any]) -> Core:
        numbers = {**values, **drawn}
        offers = {"rendering": rendering}
        core = build_part(recipe.environment, clock, recipe, offers, values=numbers)
        core = with_render(core) if rendering else core
        if core.agents and recipe.wrappers:
            raise recipe.error(
                ("environment", "wrappers"),
                f"environment `{recipe.environment.name}` is a game of {core.agents} "
                "agents, but wrappers wrap an environment of one agent",
                "remove `wrappers`",
            )
        for index, wrapper in enumerate(recipe.wrappers):
            place = ("environment", "wrappers", index)
            offers = {"core": core, "numbers": numbers}
            core = build_part(wrapper, clock, recipe, offers, place=place)
        return core

    return randomize(core_of, recipe.random_numbers)


def build_canonical_core(
    recipe: Recipe, clock: Clock, values: Mapping[str, Any], rendering: bool = False
) -> Core:
    """The same in canonical spaces, as an agent meets it."""
    core = build_core(recipe, clock, values, rendering)
    return canonical_environment(core, f"environment `{recipe.environment.name}`")


def build_simulator(recipe: Recipe, clock: Clock) -> Core | None:
    """Builds one environment as a simulator for planning.

    None unless it is pure, and one agent sees its observations and rewards unchanged.
    """
    part, normalization = recipe.environment, recipe.normalize
    if registry.find(part.kind, part.name).facts.get("adapter"):
        return None
    if (
        recipe.each
        or normalization.observation
        or normalization.reward
        or environment_preprocessing(recipe)
    ):
        return None
    core = build_canonical_core(recipe, clock, {})
    return None if core.agents else core
