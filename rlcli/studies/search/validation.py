"""Validation: compares a space with the recipe before a sweep begins."""

from rlcli.errors import RlcliError, quote
from rlcli.recipe import Recipe, RecipeDocument, load_recipe
from rlcli.recipe.settings import LONGEST
from rlcli.studies.search.space import Space, Values


def check_space(recipe: RecipeDocument, space: Space) -> tuple[Recipe, bool]:
    """Refuses options that the recipe does not have, and values that it refuses.

    Loads the recipe with the lowest and the highest value of each number and with every
    choice, other options at their first values. Returns the recipe without the space,
    and whether any of them imports code or has trackers that contact a host.
    """
    base = load_recipe(recipe)
    needs_trust = _needs_trust(base)
    checked = set()
    for option in space.options:
        for value in option.edges():
            values = space.complete(space.requirements(option) | {option.key: value})
            settings = space.settings(values)
            if settings in checked:
                continue
            checked.add(settings)
            try:
                loaded = load_recipe(recipe, settings)
            except RlcliError as error:
                raise _explain(error, recipe, space, values) from error
            needs_trust |= _needs_trust(loaded)
    return base, needs_trust


def _needs_trust(recipe: Recipe) -> bool:
    return bool(recipe.import_paths or recipe.remote_trackers)


def _explain(
    error: RlcliError, recipe: RecipeDocument, space: Space, values: Values
) -> RlcliError:
    """The error with the line of the space that causes it."""
    settings = {key: space[key].setting(value) for key, value in values.items()}
    for key, setting in settings.items():
        prefix = f"--set {quote(setting, LONGEST)[1:-1]}: "
        if error.message.startswith(prefix):
            where = space.document.where((key,))
            return RlcliError(
                f"{where}{error.message.removeprefix(prefix)}", error.hint
            )
    for key, setting in settings.items():
        try:
            load_recipe(recipe, [setting])
        except RlcliError as alone:
            where = space.document.where((key,))
            message = f"{where}the recipe is wrong with {quote(setting)}"
            return RlcliError(f"{message}: {alone.message}", alone.hint)
    where, listing = space.document.where(), ", ".join(map(quote, settings.values()))
    message = f"{where}the recipe is wrong with {listing}: {error.message}"
    return RlcliError(message, error.hint)
