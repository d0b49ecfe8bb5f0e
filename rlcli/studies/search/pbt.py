"""PBT: population-based training as a sampler of a sweep.

The trials are the members of a population, which one program trains
(`training.experiment.population`). The settings of the population and the record of its
rounds are beside the folders of the trials.
"""

from collections.abc import Sequence

from rlcli.errors import RlcliError, quote
from rlcli.recipe import Recipe
from rlcli.runs.population_rounds import (
    PopulationSettings,
    SearchedOption,
    Stage,
    find_lineage,
    read_rounds,
    write_settings,
)
from rlcli.studies.search.layout import TRIALS, Sweep
from rlcli.studies.search.space import Option, Values

KINDS = ("log_uniform", "uniform")  # of numbers that can change during training
_SHARES = 0.25, 0.75  # of the range: two values that differ, and are neither 0 nor 1


def check_population(sweep: Sweep, recipe: Recipe) -> None:
    """Refuses a recipe or a space that cannot be those of one program."""
    if recipe.train.stop is not None:
        raise RlcliError(
            "a population cannot have `train.stop`: its members end at the same step",
            "`--set train.stop=null`",
        )
    settings, space = sweep.settings, sweep.space
    for option in space.options:
        _find_option(sweep, option)
    from rlcli.training.experiment.together import group_recipes

    recipes = [
        _load(sweep, space.draw(settings.seed, trial))
        for trial in range(settings.trials)
    ]
    if len(group_recipes(recipes)) > 1:
        raise RlcliError(
            f"the members cannot be one program: `{recipe.environment.name}` is an "
            "environment on the host",
            "use another sampler, or an environment in JAX: `rlcli list environments`",
        )


def begin_population(sweep: Sweep) -> None:
    """Writes the settings of the population beside the folders of its members."""
    settings, space = sweep.settings, sweep.space
    names = (sweep.trial(number).name for number in range(settings.trials))
    write_settings(
        sweep.make(TRIALS),
        PopulationSettings(
            members=tuple(names),
            seed=settings.seed,
            ready=settings.ready or 1,
            options=tuple(_find_option(sweep, option) for option in space.options),
        ),
    )


def _find_option(sweep: Sweep, option: Option) -> SearchedOption:
    """The number in the program that an option is; refuses any other option."""
    from rlcli.assembly.numbers import recipe_numbers, without_numbers

    def fail(reason: str) -> RlcliError:
        where = sweep.space.document.where((option.key,))
        return RlcliError(
            f"{where}{quote(option.key)} cannot change during training: {reason}",
            "a population searches numbers of the agent's parts that may follow a "
            "schedule, such as `optimizer.learning_rate`, with `uniform` or "
            "`log_uniform`",
        )

    if option.kind not in KINDS or option.when:
        kind = "when" if option.when else option.kind
        raise fail(f"its distribution has `{kind}`")
    span = option.high - option.low
    pair = [option.low + share * span for share in _SHARES]
    first, second = (_load(sweep, {option.key: value}) for value in pair)
    if without_numbers(first) != without_numbers(second):
        raise fail("it is not a number of the program")
    numbers = [recipe_numbers(each) for each in (first, second)]
    places = [place for place in numbers[0] if numbers[0][place] != numbers[1][place]]
    for each, value in zip(numbers, pair, strict=True):
        if not places or any(each[place] != value for place in places):
            raise fail("it is not a number of the program")
    try:  # as in the recipe of the winner
        schedule = _schedule([(0, pair[0]), (1, pair[1])])
        sweep.load_recipe([f"{option.key}={schedule}"])
    except RlcliError as error:
        raise fail("it cannot follow a schedule") from error
    return SearchedOption(
        option.key, tuple(places), option.low, option.high, option.is_log
    )


def _load(sweep: Sweep, values: Values) -> Recipe:
    return sweep.load_recipe(sweep.space.settings(sweep.space.complete(values)))


def read_lineages(sweep: Sweep) -> dict[int, list[Stage]]:
    """The history of the state of each member, by its number."""
    settings, space = sweep.settings, sweep.space
    names = {sweep.trial(n).name: n for n in range(settings.trials)}
    keys = [option.key for option in space.options]
    rounds = read_rounds(sweep.find(TRIALS), names, keys)
    first = {name: space.draw(settings.seed, n) for name, n in names.items()}
    return {n: find_lineage(rounds, name, first) for name, n in names.items()}


def member_settings(sweep: Sweep, number: int) -> tuple[str, ...]:
    """The settings `KEY=VALUE` of a recipe that trains a member alone."""
    stages = read_lineages(sweep)[number]
    return schedule_settings(stages, sweep.load_recipe().num_envs)


def schedule_settings(stages: Sequence[Stage], num_envs: int) -> tuple[str, ...]:
    """The settings `KEY=VALUE` of a recipe whose numbers follow a history.

    The update after a round sees its step and has the new numbers. The actions at that
    step were selected before the round, by a policy with the former numbers.
    """
    settings = []
    for key, value in stages[0].options.items():
        if len(stages) == 1:
            settings.append(f"{key}={value}")
            continue
        delay = num_envs if key.startswith("policy.") else 0
        milestones = [
            (stage.step + delay if stage.step else 0, stage.options[key])
            for stage in stages
        ]
        settings.append(f"{key}={_schedule(milestones)}")
    return tuple(settings)


def _schedule(milestones: Sequence[tuple[int, float]]) -> str:
    steps = ", ".join(f"[{step}, {value}]" for step, value in milestones)
    return f"{{steps: [{steps}]}}"
