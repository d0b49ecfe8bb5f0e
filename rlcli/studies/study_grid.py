"""Study grid: the cells of recipes × environments × combinations of options.

Needs no JAX.
"""

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError, quote, suggest
from rlcli.recipe import (
    AnyRecipe,
    RecipeDocument,
    check_document,
    read_recipe,
    read_without_parts,
    shipped_recipes,
)
from rlcli.recipe.documents import parse
from rlcli.recipe.settings import Setting
from rlcli.recipe.varying import NONE, check_count, find_repeated
from rlcli.registry.paths import enter
from rlcli.results.claim_test import SEED, ClaimTest, check_test
from rlcli.results.groups import ENVIRONMENT
from rlcli.runs.creation import check_place
from rlcli.runs.files import to_json
from rlcli.runs.moved_recipes import find_recipe
from rlcli.runs.naming import describe_overrides, name_folder, number_folder
from rlcli.runs.opened_folder import OpenedFolder
from rlcli.runs.run_folder import is_run
from rlcli.runs.study_record import Cell

# Of the section `environment` of a recipe, which other environments get as well.
_KEPT = ("num_envs", "wrappers")
_AXES = {f"{ENVIRONMENT}.name": ENVIRONMENT}  # options that are an axis of a study


class GridRecipe(NamedTuple):
    """A recipe of a study, and the name of its cells."""

    document: RecipeDocument
    name: str


class GridEnvironment(NamedTuple):
    """An environment of a study: the section of a recipe, and the name of its cells."""

    section: Mapping[str, Any]
    name: str
    recipe: GridRecipe | None = None  # which is trained on it instead of the others
    origin: str = ""  # the file and line


class Grid(NamedTuple):
    """The axes of a study; a cell for each combination."""

    recipes: Sequence[GridRecipe]
    environments: Sequence[GridEnvironment | None] = (None,)  # None: the recipe's own
    combinations: Sequence[tuple[str, ...]] = ((),)  # of settings `KEY=VALUE`
    sets: tuple[str, ...] = ()  # of all cells, before those that vary
    overrides: tuple[Setting, ...] = ()  # of all cells, after those that vary
    sections: Mapping[str, Any] = {}  # of the record of the study
    references: Sequence[Setting] = ()  # `ENVIRONMENT=LOW,HIGH`, of study and test
    test: ClaimTest | None = None
    test_origin: str = ""  # the file and line of the test

    def vary(self, combinations: Sequence[tuple[str, ...]]) -> "Grid":
        """The grid with an axis more: settings that come after its own."""
        check_count(len(self.combinations) * len(combinations))
        product = itertools.product(self.combinations, combinations)
        return self._replace(combinations=[(*one, *other) for one, other in product])


def grid_of(recipes: Sequence[AnyRecipe], **fields: Any) -> Grid:
    """A grid of recipes under their own names, with a number after equal ones."""
    named: list[GridRecipe] = []
    for recipe in recipes:
        document = read_recipe(recipe)
        taken = [Path(each.name) for each in named]
        name = number_folder(Path(document.name), taken.__contains__).name
        named.append(GridRecipe(document, name))
    return Grid(named, **fields)


def plan_cells(grid: Grid, study: Path, **fields: Any) -> list[Cell]:
    """The cells of a grid; refuses recipes and options that are wrong.

    With a test, those of its first block of seeds; refuses one without sense.

    Args:
        grid: the axes; a recipe may have a section `vary`, which is one more.
        study: the folder of the study. The folder of a cell in it is named after the
            recipe, the environment and the options, where there are several.
        fields: other fields of each cell.
    """
    check_count(_count_cells(grid), what="cells")
    planned = [*_combine_axes(grid)]
    several = {
        axis: len({cell[axis] for cell, _, _ in planned}) > 1
        for axis in ("recipe", "environment")
    }
    cells: list[Cell] = []
    taken: set[Path] = set()
    for names, settings, document in planned:
        axes = {key: name for key, name in names.items() if several[key]}
        pairs = (setting.partition("=") for setting in settings)
        options = {_AXES.get(key, key): text for key, _, text in pairs}
        if (name := options.get(ENVIRONMENT)) is not None:
            options[ENVIRONMENT] = _unquote(name)
        parts = [name_folder(name) or axis for axis, name in axes.items()]
        parts.append(describe_overrides(settings))
        place = study.joinpath(*filter(None, parts))
        if place == study:  # a single run
            place /= name_folder(names["recipe"]) or "recipe"
        place = number_folder(place, taken.__contains__)
        taken.add(place)
        OpenedFolder(study).find(*place.relative_to(study).parts)  # refuses links
        check_place(run=place)
        own = {"folder": place, "study": study, "values": {**axes, **options}}
        cells.append(make_cell(document, **own, **fields))
    if is_run(study):
        message = f"`{study}` already contains a run"
        raise RlcliError(message, "choose another folder with `--run`")
    _check_references(grid.references, cells)
    if grid.test is None:
        return cells
    try:
        check_test(grid.test, cells)
    except RlcliError as error:
        raise RlcliError(f"{grid.test_origin}{error.message}", error.hint) from error
    return [begin_block(cell, cell.label, grid.test.seed) for cell in cells]


def begin_block(cell: Cell, label: str, seed: int) -> Cell:
    """A cell with the block of seeds that begins with `seed`."""
    setting = f"{SEED}={seed}"
    own = f"{setting.rpartition('.')[2]}/{label}"
    OpenedFolder(cell.study).find(*Path(own).parts)  # refuses links
    kept = (text for text in cell.sets if not text.startswith(f"{SEED}="))
    document = cell.document and cell.document.with_settings(setting)
    return cell._replace(
        folder=cell.study / own,
        sets=(*kept, setting),
        values={**cell.values, SEED: str(seed)},
        document=document,
    )


def _check_references(references: Sequence[Setting], cells: Sequence[Cell]) -> None:
    """Refuses references for environments that no cell has."""
    known = {_name_environment(cell) for cell in cells} if references else set[str]()
    for text in references:
        name = text.rpartition("=")[0]
        if name and name not in known:  # without a name it is that of all
            message = f"{text.origin}: the study has no environment {quote(name)}"
            raise RlcliError(message, suggest(name, known))


def _name_environment(cell: Cell) -> str:
    """The environment of a planned cell, by the name that results have for it."""
    if ENVIRONMENT in cell.values:
        return cell.values[ENVIRONMENT]
    assert cell.document is not None  # it is planned
    return str(_environment_of(cell.document).get("name"))


def _count_cells(grid: Grid) -> int:
    """The number of combinations of the axes, before they are made."""

    def count(recipe: GridRecipe) -> int:
        return len(recipe.document.with_settings(*grid.sets).combinations)

    shared = sum(map(count, grid.recipes))
    own = [each and each.recipe for each in grid.environments]
    total = sum(shared if recipe is None else count(recipe) for recipe in own)
    return total * len(grid.combinations)


def _unquote(text: str) -> str:
    """A name without the quotes that it may have as YAML."""
    value = parse(text, "").data
    return value if isinstance(value, str) else text


def _combine_axes(
    grid: Grid,
) -> Iterator[tuple[dict[str, str], tuple[str, ...], RecipeDocument]]:
    """The names, the options that vary, and the recipe of each cell."""
    for environment in grid.environments:
        own = environment.recipe if environment is not None else None
        for recipe in [own] if own is not None else grid.recipes:
            document = recipe.document.with_settings(*grid.sets)
            section = _environment_of(document)
            names = {"recipe": recipe.name, "environment": str(section.get("name", ""))}
            if environment is not None:
                names["environment"] = environment.name
                document = _replace_environment(document, section, environment)
            for combination in document.combinations:
                for given in grid.combinations:
                    settings = (*combination, *given)
                    keys = [_AXES.get(key, key) for key in _keys(settings)]
                    axes = [ENVIRONMENT] if environment is not None else []
                    _refuse_twice([*axes, *keys])
                    _refuse_overridden(settings, grid.overrides)
                    sets = [NONE] if combination else []
                    sets += [*settings, *grid.overrides]
                    yield names, settings, check_document(document.with_settings(*sets))


def _environment_of(document: RecipeDocument) -> dict[str, Any]:
    """The section `environment` of a recipe, as a mapping."""
    section = read_without_parts(document).data.get("environment")
    return dict(section) if isinstance(section, Mapping) else {"name": section}


def _replace_environment(
    document: RecipeDocument, own: Mapping[str, Any], other: GridEnvironment
) -> RecipeDocument:
    """The recipe on another environment, or on its own with other options."""
    if other.section["name"] != own.get("name"):
        own = {key: own[key] for key in _KEPT if key in own}
    text = f"environment={to_json({**own, **other.section})}"
    return document.with_settings(Setting(text, other.origin))


def make_cell(document: RecipeDocument, *, embeds: bool = False, **fields: Any) -> Cell:
    """A cell of a recipe with its settings; `fields` are the others.

    `embeds`: the cell has the data of a recipe, not the path of its file, which another
    machine may not have.
    """
    is_shipped = shipped_recipes().get(document.name) == document.path
    recipe: str | Mapping[str, Any] = document.name
    if document.path is None:
        recipe = {"name": document.name, "data": document.written.data}
    elif not is_shipped and embeds:
        recipe = {"name": document.name, "data": document.merged_document.data}
    elif not is_shipped:
        recipe = str(enter(document.path))
    read = document if isinstance(recipe, str) else read_recipe(recipe["data"])
    own = {"recipe": recipe, "digest": digest_of(read), "sets": document.sets}
    return Cell(**own, document=document, **fields)


def read_cell(cell: Cell, sets: Sequence[str] = ()) -> RecipeDocument:
    """The recipe of a cell with its settings; refuses one that has changed since."""
    if cell.document is not None:
        return cell.document.with_settings(*sets)
    if isinstance(cell.recipe, str):
        recipe = find_recipe(cell.study, cell.recipe)
        document = read_recipe(recipe, (*cell.sets, *sets))
    else:
        document = read_recipe(cell.recipe["data"], (*cell.sets, *sets))
        document = dataclasses.replace(document, name=cell.recipe["name"])
    if digest_of(document) != cell.digest:
        raise RlcliError(
            f"the recipe {quote(document.name)} has changed since its study was "
            f"planned, and `{cell.folder}` has not begun",
            "restore the recipe, or begin another study",
        )
    return document


def digest_of(document: RecipeDocument) -> str:
    """The SHA-256 of a recipe with its bases, without its settings."""
    return hashlib.sha256(to_json(document.merged_document.data).encode()).hexdigest()


def combine(
    vary: Sequence[str], vary_zip: Sequence[str] = ()
) -> Iterator[tuple[str, ...]]:
    """The settings `KEY=VALUE` of each combination.

    >>> [*combine(["a=1,2"], ["b=[3,4],5", "c=6,7"])]
    [('a=1', 'b=[3,4]', 'c=6'), ('a=1', 'b=5', 'c=7'),
     ('a=2', 'b=[3,4]', 'c=6'), ('a=2', 'b=5', 'c=7')]
    """
    axes = [[(setting,) for setting in _parse_values(text)] for text in vary]
    if vary_zip:
        zipped = [_parse_values(text) for text in vary_zip]
        if len({*map(len, zipped)}) > 1:
            counts = ", ".join(
                f"`{text.partition('=')[0]}` {len(values)}"
                for text, values in zip(vary_zip, zipped, strict=True)
            )
            raise RlcliError(
                f"`--vary-zip` needs the same number of values for each option: "
                f"{counts}",
                "add or remove values, or use `--vary` for a grid",
            )
        axes.append([*zip(*zipped, strict=True)])
    for axis in axes:
        if repeated := find_repeated(axis):
            text = ", ".join(repeated)
            raise RlcliError(f"{quote(text)} is listed twice", "remove one of them")
    check_count(math.prod(map(len, axes)))
    _refuse_twice([text.partition("=")[0].strip() for text in (*vary, *vary_zip)])
    for combination in itertools.product(*axes):
        yield tuple(itertools.chain(*combination))


def _refuse_overridden(settings: Sequence[str], overrides: Sequence[Setting]) -> None:
    """Refuses to vary what `seed` and `seeds` set for every cell."""
    varied = {*_keys(settings)}
    for setting, key in zip(overrides, _keys(overrides), strict=True):
        if key in varied:
            raise RlcliError(
                f"{setting.origin}: `{key}` is varied, and would be the same for every "
                "run",
                f"remove `{key.rpartition('.')[2]}`, or the values of `{key}`",
            )


def _refuse_twice(keys: Sequence[str]) -> None:
    for key in keys:
        if keys.count(key) > 1:
            raise RlcliError(
                f"{quote(key)} is varied twice", "list all its values in one option"
            )


def _parse_values(text: str) -> list[str]:
    """`a=1,[2,3]` as `a=1` and `a=[2,3]`."""
    key, equals, values = text.partition("=")
    parts, depth, quoted = [""], 0, ""
    for character in values:
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "\"'":
            quoted = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    settings = [f"{key.strip()}={part.strip()}" for part in parts]
    if not key.strip() or not equals or not all(part.strip() for part in parts):
        raise RlcliError(
            f"expected options to vary as KEY=VALUE,VALUE, got {quote(text)}",
            "for example `--vary optimizer.learning_rate=1e-4,3e-4`",
        )
    return settings


def _keys(settings: Sequence[str]) -> tuple[str, ...]:
    return tuple(text.partition("=")[0] for text in settings)
