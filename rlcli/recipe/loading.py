"""Loading: validates, resolves and dumps recipes.

A `Recipe` holds every option of a run, validated and with all defaults filled in.
`rlcli.assembly.build` builds it. Errors name the file and the line.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rlcli import registry
from rlcli.errors import RlcliError, quote
from rlcli.quoting import quote_shell
from rlcli.recipe import documents, grammar, varied_options
from rlcli.recipe.annotations import has_mark
from rlcli.recipe.documents import Document, Place
from rlcli.recipe.extending import shipped_recipes
from rlcli.recipe.merging import DEFAULT
from rlcli.recipe.reading import AnyRecipe, RecipeDocument, read_recipe
from rlcli.recipe.sections import NetworkSpec, Part, Sections
from rlcli.recipe.settings import apply_settings
from rlcli.registry import user_code
from rlcli.schedules import RandomNumber


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe, read and validated."""

    environment: Part
    num_envs: int
    time_limit: int | Literal["default"] | None  # default: that of the library
    timeout: float | None  # seconds per step of a host environment
    # Environment i takes value i mod n, or each episode draws from a distribution.
    each: Mapping[str, list[float] | RandomNumber]
    wrappers: tuple[Part, ...]  # from the inside out
    info: Mapping[str, grammar.InfoRule]  # what episodes log of `TimeStep.info`
    levels: grammar.Levels | None  # that episodes play; None: each is new
    network: Mapping[str, NetworkSpec]  # keys: functions, DEFAULT or SHARED
    policy: Part
    tracer: Part
    replay: Part | None  # without one the agent learns online
    updater: Part
    intrinsic_reward: Part | None  # added to the environment's
    optimizer: Mapping[str, Part]  # keys: groups, always with DEFAULT
    normalize: grammar.Normalize
    init: grammar.Init | None  # what a new run starts from
    freeze: Mapping[str, int | Literal[True]]  # the step up to which; True: for ever
    train: grammar.Train
    extra: Mapping[str, Any]  # data of the user, ignored by rlcli
    name: str = dataclasses.field(default="recipe", compare=False)
    document: Document = dataclasses.field(
        default_factory=lambda: Document({}), compare=False, repr=False
    )

    @property
    def copies(self) -> dict[str, list[float]]:
        """The values of `each` that differ between copies of the environment."""
        return varied_options.copies_of(self.each)

    @property
    def random_numbers(self) -> dict[str, RandomNumber]:
        """The distributions in `each`, from which every episode draws."""
        return varied_options.random_numbers_of(self.each)

    @property
    def source(self) -> str:
        """The file the recipe was read from; "" if there is none."""
        return self.document.source

    @property
    def optimizers(self) -> dict[str, Part]:
        """The optimizers by their place: `optimizer` if single, else `optimizer.q`."""
        return {
            ".".join(self.optimizer_place(group)): part
            for group, part in self.optimizer.items()
        }

    @property
    def agent_parts(self) -> dict[str, Part]:
        """The parts of the agent that have numbers, by their places in the recipe."""
        parts = (self.updater, self.policy, self.tracer)
        parts += (self.replay, self.intrinsic_reward)
        return self.optimizers | {part.kind: part for part in parts if part is not None}

    def optimizer_place(self, group: str) -> tuple[str, ...]:
        """The place of the optimizer of a group."""
        is_single = set(self.optimizer) == {DEFAULT}
        return ("optimizer",) if is_single else ("optimizer", group)

    @property
    def part_names(self) -> list[tuple[str, str]]:
        """The kind and the name of each part."""
        parts = [self.environment, *self.wrappers, self.policy, self.tracer]
        parts += [self.updater, *self.optimizer.values()]
        heads = []
        for spec in self.network.values():
            parts += [*filter(None, [spec.part, spec.memory]), *spec.preprocess]
            heads += [("head", spec.head["name"])] if "name" in spec.head else []
        parts += filter(None, [self.replay, self.intrinsic_reward])
        parts += [*self.train.trackers, *self.train.hooks]
        return [*((part.kind, part.name) for part in parts), *heads]

    @property
    def import_paths(self) -> list[str]:
        """The import paths in names and options, which import code outside rlcli."""
        paths = {name for _, name in self.part_names if ":" in name}
        factory = self.environment.registered.factory
        paths |= {
            self.environment.options[parameter.name]
            for parameter in registry.options(factory).values()
            if has_mark(parameter.annotation, "import path")
        }
        return sorted(paths - {None})

    @property
    def remote_trackers(self) -> list[str]:
        """The trackers that contact a host, or write outside the folder of the run."""
        return [
            part.name
            for part in self.train.trackers
            if not part.registered.facts.get("is_local", False)
        ]

    @property
    def replay_capacity(self) -> int:
        """The capacity of the replay, in steps."""
        return int(self.replay.options.get("capacity", 1)) if self.replay else 0

    @functools.cached_property
    def resolved_text(self) -> str:
        """The recipe as YAML with every default, as runs and checkpoints contain it."""
        return documents.dump_yaml(resolve(self))

    def error(self, place: Place, message: str, hint: str = "") -> RlcliError:
        """An error about a value, which begins with its file and line."""
        where = self.document.where(place)
        return RlcliError(f"{where}{message}", hint, is_located=True)

    def locate_error(self, place: Place, error: RlcliError) -> RlcliError:
        """Adds the file and line of a section to an error that has none."""
        where = "" if error.is_located else self.document.where(place)
        message, hint, code = f"{where}{error.message}", error.hint, error.code
        return RlcliError(message, hint, code=code, is_located=True)


def load_recipe(
    recipe: AnyRecipe,
    sets: Sequence[str] = (),
    *,
    trusted: bool = True,
    is_stored: bool = False,
) -> Recipe:
    """Loads a recipe from a file, by the name of a built-in recipe, or from data.

    `sets` are `a.b=value`. A recipe that is not `trusted` may only use built-in parts
    and installed plug-ins. A recipe that `is_stored`, in a run or a checkpoint, is
    complete: it may not extend others.
    """
    read = read_recipe(recipe, sets, is_stored=is_stored)
    if read.path is not None:
        is_shipped = read.path in shipped_recipes().values()
        user_code.search_first(*() if is_shipped else (read.path.parent,))
    sections = Sections(apply_settings(read.merged_document, read.sets), trusted)
    return _read_sections(sections, read.name)


def load_to_train(recipe: AnyRecipe, *, trust: bool) -> Recipe:
    """Loads a recipe that will be trained.

    Without `trust` it imports no code from outside rlcli and its plug-ins, and has no
    tracker that contacts a host.
    """
    loaded = load_recipe(recipe, trusted=trust)
    if not trust and loaded.remote_trackers:
        raise loaded.error(
            ("train", "trackers"),
            f"tracker {quote(loaded.remote_trackers[0])} can contact a host, or write "
            "outside the run's folder",
            "pass `--trust` if you trust the source of the recipe",
        )
    return loaded


def check_document(recipe: AnyRecipe, sets: Sequence[str] = ()) -> RecipeDocument:
    """Refuses a recipe for what can be seen without its parts, hence without JAX."""
    read = read_recipe(recipe, sets)
    Sections(apply_settings(read.merged_document, read.sets), True).check_plain()
    return read


def load_bases(recipe: str | Path) -> Recipe:
    """The recipes that a recipe extends, merged without the recipe itself."""
    bases = read_recipe(recipe).merge_bases()
    if bases is None:
        message = f"recipe {quote(recipe)} extends no other recipe"
        hint = f"`rlcli show {quote_shell(recipe)}` shows all of its options"
        raise RlcliError(message, hint)
    try:
        return _read_sections(Sections(bases, True), "bases")
    except RlcliError as error:
        message = f"the recipes that {quote(recipe)} extends are incomplete"
        raise RlcliError(f"{message}: {error.message}", error.hint) from error


def resolve(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain data with every default; loading it gives an equal recipe."""
    networks = {key: _network_to_plain(each) for key, each in recipe.network.items()}
    optimizers = recipe.optimizer
    plain = {
        "environment": _environment_to_plain(recipe),
        "network": networks[DEFAULT] if set(networks) == {DEFAULT} else networks,
        "policy": recipe.policy,
        "tracer": recipe.tracer,
        "replay": recipe.replay,
        "updater": recipe.updater,
        "intrinsic_reward": recipe.intrinsic_reward,
        "optimizer": optimizers[DEFAULT] if len(optimizers) == 1 else optimizers,
        "normalize": recipe.normalize,
        "init": recipe.init,
        "freeze": recipe.freeze,
        "train": _train_to_plain(recipe),
        "extra": recipe.extra,
    }
    absent = ("intrinsic_reward", "init", "freeze")  # unless they say something
    given = {key: each for key, each in plain.items() if each or key not in absent}
    return grammar.to_plain(given)


dump_recipe = documents.dump_yaml  # of a recipe's data, for example of `resolve`


def _read_sections(sections: Sections, name: str) -> Recipe:
    """Reads all sections, each after those that its defaults depend on."""
    sections.check()
    environment, vector = sections.environment()
    updater = sections.part("updater", sections.data["updater"])
    facts = updater.registered.facts
    replay = sections.optional("replay", facts)
    train = sections.train(environment, vector, facts, replay)
    wrappers = sections.wrappers(environment, vector.wrappers)
    return Recipe(
        environment=environment,
        num_envs=vector.num_envs,
        time_limit=vector.time_limit,
        timeout=vector.timeout,
        each=sections.each(environment, vector),
        wrappers=wrappers,
        info=vector.info,
        levels=vector.levels,
        network=sections.networks(facts),
        policy=sections.section("policy", facts),
        tracer=sections.section("tracer", facts),
        replay=replay,
        updater=updater,
        intrinsic_reward=sections.optional("intrinsic_reward", facts),
        optimizer=sections.optimizers(facts),
        normalize=sections.normalize(),
        init=sections.init(),
        freeze=sections.freeze(),
        train=sections.grid(environment, vector, wrappers, train),
        extra=sections.mapping("extra"),
        name=name,
        document=sections.document,
    )


def _environment_to_plain(recipe: Recipe) -> dict[str, Any]:
    varied = {key.removesuffix("_"): each for key, each in recipe.each.items()}
    plain = grammar.to_plain(recipe.environment)
    plain |= {"num_envs": recipe.num_envs, "time_limit": recipe.time_limit}
    given = {
        "timeout": recipe.timeout,
        "wrappers": recipe.wrappers,
        "info": recipe.info,
        "levels": recipe.levels,
        "each": varied,  # in place of the options themselves
    }
    plain = {key: value for key, value in plain.items() if key not in varied}
    return plain | {key: value for key, value in given.items() if value}


def _train_to_plain(recipe: Recipe) -> dict[str, Any]:
    train = recipe.train
    is_integer = train.updates.denominator == 1
    per_step = train.updates / (train.unroll * recipe.num_envs)
    updates = int(train.updates) if is_integer else {"per_step": float(per_step)}
    return grammar.to_plain(train) | {"updates": updates}


def _network_to_plain(network: NetworkSpec) -> dict[str, Any]:
    head = {"name": "scalar", **network.head}
    if network.part is None:
        return head
    given = {
        "memory": network.memory,
        "preprocess": network.preprocess,
        "head": network.head and head,
    }
    return grammar.to_plain(network.part) | {k: v for k, v in given.items() if v}
