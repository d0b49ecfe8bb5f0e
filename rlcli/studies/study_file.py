"""Study file: reads the YAML file of a study, without JAX.

recipes: [ppo_cartpole, mine.yaml, {name: large, recipe: mine.yaml, set: [...]}]
environments: [CartPole-v1, {name: MinAtar/Breakout-v1, recipe: ppo_breakout}]
vary: {tracer.lambda: [0.9, 0.95]}
seeds: 10
seed: 1000
set: [train.steps=100_000]
test: {baseline: ppo_cartpole, effect: 20, max_seeds: 50}
reference: {MinAtar/Breakout-v1: [0, 100]}
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rlcli.errors import RlcliError, quote, suggest
from rlcli.recipe import documents, read_recipe, seed_settings
from rlcli.recipe.annotations import quote_value
from rlcli.recipe.documents import Document, Place
from rlcli.recipe.settings import Setting
from rlcli.recipe.varying import recipe_combinations
from rlcli.results.claim_test import SEED, TEST, ClaimTest, convert_test
from rlcli.results.references import is_reference
from rlcli.runs.naming import name_folder
from rlcli.runs.study_record import REFERENCE
from rlcli.studies.study_grid import Grid, GridEnvironment, GridRecipe

KEYS = ("recipes", "environments", "vary", "seeds", "seed", "set", TEST, REFERENCE)
EXAMPLE = "a study is a file such as `recipes: [ppo_cartpole, dqn_cartpole]`"
_REFERENCE = "for example `reference: {CartPole-v1: [22, 475]}`"
_RECIPE = "it is the file of a recipe, which `rlcli train` trains, also with `--vary`"
_MOST = 1_000  # recipes, and environments


def read_study(
    study: str | Path | Mapping[str, Any],
    sets: Sequence[str] = (),
    overrides: Sequence[Setting] = (),
) -> Grid:
    """The grid of a study: of a YAML file, or of its data.

    Recipes are files beside that of the study, or names of built-in ones. `sets` come
    after the settings of the study, `overrides` after everything else.
    """
    if isinstance(study, Mapping):
        document = documents.from_mapping(study)
    else:
        document = documents.load_document(Path(study), example=EXAMPLE)
    return _Reader(document).grid(tuple(sets), tuple(overrides))


class _Reader:
    """Reads the data of a study, and names places in errors."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.data: Mapping[str, Any] = document.data
        self.folder = Path(document.source).parent if document.source else None

    def grid(self, sets: tuple[str, ...], overrides: tuple[Setting, ...]) -> Grid:
        for key in self.data:
            if key not in KEYS:
                message = f"a study has no key {quote(key)}"
                is_study = "environment" not in self.data or "recipes" in self.data
                hint = suggest(key, KEYS) if is_study else _RECIPE
                self.fail((key,), message, hint)
        environments = [
            self.environment(*each) for each in self.entries("environments")
        ]
        recipes = [self.recipe(*each) for each in self.entries("recipes")]
        if not recipes and not environments:
            self.fail((), "a study needs `recipes`", EXAMPLE)
        for index, environment in enumerate(environments):
            if environment.recipe is None and not recipes:
                message = f"{quote(environment.name)} has no recipe, and the study none"
                self.fail(("environments", index), message, EXAMPLE)
        seed, seeds = self.integer("seed"), self.integer("seeds")
        if seed is None and self.data.get(TEST) is not None:
            seed = 0
        own = seed_settings(seed, seeds, self.origin)
        given = {text.partition("=")[0] for text in overrides}
        own = [text for text in own if text.partition("=")[0] not in given]
        recipes = self.refuse_equal_names(recipes, "recipes")
        environments = self.refuse_equal_names(environments, "environments")
        combinations = recipe_combinations(self.document)
        all_sets = (*self.texts(("set",), self.data.get("set", [])), *sets)
        references, test = self.references(), self.test((*own, *overrides))
        sections = {}
        if references:
            sections[REFERENCE] = self.data[REFERENCE]
        if test is not None:
            for index, text in enumerate(test.reference):
                references.append(Setting(text, self.origin(TEST, REFERENCE, index)))
            test = test._replace(reference=[*references])
            sections[TEST] = test._asdict()
        return Grid(
            recipes,
            environments or [None],
            combinations,
            all_sets,
            (*own, *overrides),
            sections=sections,
            references=references,
            test=test,
            test_origin=self.origin(TEST),
        )

    def origin(self, *place: str | int) -> str:
        """The place of a value; of data without a file the name of its section."""
        return self.document.where(place) or f"`{place[0]}`: "

    def test(self, overrides: Sequence[str]) -> ClaimTest | None:
        """The test, with the blocks that `seeds` and `seed` of the study make."""
        if (fields := self.data.get(TEST)) is None:
            return None
        numbers = {key: text for key, _, text in (o.partition("=") for o in overrides)}
        if "train.seeds" not in numbers:
            message = "a study with a `test` needs `seeds`, the size of a block"
            self.fail((TEST,), message, "for example `seeds: 5`")
        seeds, seed = int(numbers["train.seeds"]), int(numbers.get(SEED, "0"))
        return convert_test(fields, self.fail, seeds=seeds, seed=seed)

    def references(self) -> list[Setting]:
        """The returns of the study that become 0 and 1: `ENVIRONMENT=LOW,HIGH`."""
        if not isinstance(section := self.data.get(REFERENCE), Mapping | None):
            message = f"`{REFERENCE}`: expected a mapping, got {quote_value(section)}"
            self.fail((REFERENCE,), message, _REFERENCE)
        found: list[Setting] = []
        for name, pair in (section or {}).items():
            if not name:  # in a test it would be for all environments
                self.fail((REFERENCE,), "an environment has no name", _REFERENCE)
            if not is_reference(pair):
                message = f"expected two different numbers, got {quote_value(pair)}"
                self.fail((REFERENCE, name), message, _REFERENCE)
            text = f"{name}={pair[0]},{pair[1]}"
            found.append(Setting(text, self.origin(REFERENCE, name)))
        return found

    def entries(self, key: str) -> list[tuple[Any, Place]]:
        """The values of a list, with their places."""
        value = self.data.get(key, [])
        if not isinstance(value, list):
            self.fail((key,), f"`{key}`: expected a list, got {quote_value(value)}")
        if len(value) > _MOST:
            self.fail((key,), f"`{key}` has {len(value):,} values, more than {_MOST:,}")
        return [(each, (key, index)) for index, each in enumerate(value)]

    def recipe(self, value: Any, place: Place) -> GridRecipe:
        """A recipe by name or file; or with settings, and a name of its own."""
        fields = self.fields(value, "recipe", ("recipe", "name", "set"), place)
        name, sets = fields.get("name"), self.texts((*place, "set"), fields.get("set"))
        recipe = fields["recipe"]
        beside = None if self.folder is None else self.folder / recipe
        try:
            is_beside = beside is not None and beside.is_file()
            document = read_recipe(beside if beside and is_beside else recipe, sets)
        except (OSError, ValueError) as error:  # no possible name of a file
            self.fail(place, f"there is no recipe {quote(recipe)}: {error}")
        except RlcliError as error:
            self.fail(place, error.message, error.hint)
        label = document.name if name is None else name_folder(str(name))
        if not label:
            self.fail((*place, "name"), f"{quote(name)} cannot be the name of a folder")
        return GridRecipe(document, label)

    def environment(self, value: Any, place: Place) -> GridEnvironment:
        """An environment by name; or the section of a recipe, maybe with its recipe."""
        fields = {"name": value} if isinstance(value, str) else value
        if not isinstance(fields, Mapping) or not isinstance(fields.get("name"), str):
            message = f"expected an environment, got {quote_value(value)}"
            self.fail(place, message, "for example `{name: CartPole-v1, gravity: 12}`")
        section = {key: each for key, each in fields.items() if key != "recipe"}
        own = None
        if "recipe" in fields:
            own = self.recipe(fields["recipe"], (*place, "recipe"))
        options = [f"{key}={each}" for key, each in section.items() if key != "name"]
        name = ",".join([section["name"], *options])
        return GridEnvironment(section, name, own, self.document.where(place))

    def fields(
        self, value: Any, key: str, known: Sequence[str], place: Place
    ) -> Mapping[str, Any]:
        """A mapping with a text at `key`, which may be written as the text alone."""
        fields = {key: value} if isinstance(value, str) else value
        if not isinstance(fields, Mapping) or not isinstance(fields.get(key), str):
            self.fail(place, f"expected a {key}, got {quote_value(value)}", EXAMPLE)
        for each in fields:
            if each not in known:
                message = f"a {key} of a study has no key {quote(each)}"
                self.fail((*place, each), message, suggest(each, known))
        return fields

    def texts(self, place: Place, value: Any) -> list[str]:
        """A list of settings `KEY=VALUE`."""
        value = [] if value is None else value
        if not isinstance(value, list) or not all(
            isinstance(each, str) and "=" in each for each in value
        ):
            message = f"expected settings, got {quote_value(value)}"
            self.fail(place, message, "for example `set: [train.steps=100_000]`")
        return [
            Setting(text, self.document.where((*place, index)))
            for index, text in enumerate(value)
        ]

    def integer(self, key: str) -> int | None:
        value = self.data.get(key)
        least = 1 if key == "seeds" else 0
        is_right = type(value) is int and value >= least
        if value is not None and not is_right:
            message = f"`{key}`: expected a whole number ≥ {least}"
            self.fail((key,), f"{message}, got {quote_value(value)}")
        return value

    def refuse_equal_names(self, entries: Sequence[Any], key: str) -> list[Any]:
        """The entries; refuses two of one name, whose cells could not be told apart."""
        names = [each.name for each in entries]
        for index, name in enumerate(names):
            if name in names[:index]:
                message = f"two of `{key}` are called {quote(name)}"
                hint = "write `{name: …, recipe: …}`" if key == "recipes" else ""
                self.fail((key, index), message, hint)
        return [*entries]

    def fail(self, place: Place, message: str, hint: str = "") -> NoReturn:
        raise RlcliError(f"{self.document.where(place)}{message}", hint)
