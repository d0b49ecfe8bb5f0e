"""Experiments: bsuite's table of ids, such as `catch_noise/3`.

An id is an experiment and the index of a setting: `SETTINGS`, `NUM_EPISODES` and `TAGS`
in each `bsuite/experiments/*/sweep.py` (Osband et al., 2019,
https://arxiv.org/abs/1908.03568). Several ids with equal settings are several seeds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.errors import RlcliError, suggest

Settings = tuple[Mapping[str, Any], ...]
TAGS = (
    *("basic", "credit_assignment", "exploration"),
    *("generalization", "memory", "noise", "scale"),
)
# The number of steps of the longest episode, given the options of the environment.
_LENGTHS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "Cartpole": lambda options: 1_001,
    "CartpoleSwingup": lambda options: 1_001,
    "Catch": lambda options: 9,
    "DeepSea": lambda options: options["size"],
    "DiscountingChain": lambda options: 100,
    "MemoryChain": lambda options: options["memory_length"] + 1,
    "MNISTBandit": lambda options: 1,
    "MountainCar": lambda options: 1_000,
    "SimpleBandit": lambda options: 1,
    "UmbrellaChain": lambda options: options["chain_length"],
}
_LOG_SPACED = (*range(1, 11), 12, 14, 17, 20, 25)
_TO_HUNDRED = (*_LOG_SPACED, *range(30, 105, 10))
_WRAPPERS = {  # of a setting, by its name in bsuite
    "noise_scale": lambda value: {"name": "reward_noise", "scale": value},
    "reward_scale": lambda value: {"name": "scale_reward", "factor": value},
}


class BsuiteExperiment(NamedTuple):
    """An experiment of bsuite."""

    name: str
    environment: str  # without `bsuite/`
    episodes: int  # of a run
    tags: tuple[str, ...]  # the first is the type of the experiment
    settings: Settings  # by index, with bsuite's names
    fixed: Mapping[str, Any] = {}  # options of all of its environments

    def options(self, index: int) -> dict[str, Any]:
        """The section `environment` of an id, without `num_envs`.

        Total returns are logged, as bsuite does.
        """
        setting = self.settings[index]
        own = {k: v for k, v in setting.items() if k not in ("seed", *_WRAPPERS)}
        wrappers: list[Any] = [
            make(setting[key]) for key, make in _WRAPPERS.items() if key in setting
        ]
        wrappers.append("log_return")
        name = f"bsuite/{self.environment}"
        return {"name": name, **own, **self.fixed, "wrappers": wrappers}

    def max_length(self, index: int) -> int:
        """The steps of the longest episode of an id."""
        return _LENGTHS[self.environment](self.options(index))


class IdGroup(NamedTuple):
    """Ids with equal settings, which are the consecutive seeds of one run."""

    experiment: str
    indices: tuple[int, ...]
    seed: int  # of the first one, relative to the first seed of the sweep


def _vary(option: str, values: Iterable[Any]) -> Settings:
    """A setting for each value of an option."""
    return tuple({option: value} for value in values)


def _family(
    name: str,
    environment: str,
    episodes: int,
    plain: Settings,
    tags: tuple[str, ...] = (),
    variant_tags: tuple[str, ...] = (),
) -> Iterator[BsuiteExperiment]:
    """A basic experiment and its variants with reward noise and with scaled rewards."""
    yield BsuiteExperiment(name, environment, episodes, ("basic", *tags), plain)
    mappings = [{}] * 4
    if "mapping_seed" in plain[0]:
        mappings = [{"mapping_seed": seed} for seed in range(4)]
    for variant, values in (
        ("noise", (0.1, 0.3, 1.0, 3.0, 10.0)),
        ("scale", (0.001, 0.03, 1.0, 30.0, 1_000.0)),
    ):
        key = {"noise": "noise_scale", "scale": "reward_scale"}[variant]
        settings = tuple(
            {key: value, "seed": None, **mapping}
            for value in values
            for mapping in mappings
        )
        own = (variant, *variant_tags)
        yield BsuiteExperiment(
            f"{name}_{variant}", environment, episodes, own, settings
        )


_DEPTHS: Settings = tuple(
    {"size": size, "mapping_seed": 42} for size in range(10, 51, 2)
)
_SWINGUP: Settings = tuple(
    {"height_threshold": n / 20, "x_reward_threshold": 1 - n / 20} for n in range(20)
)
_SEEDS, _MAPPINGS = _vary("seed", [None] * 20), _vary("mapping_seed", range(20))
_CREDIT, _EXPLORATION = ("credit_assignment",), ("exploration",)
_GENERALIZATION, _NOISE = ("generalization",), ("noise",)
_EXPERIMENTS = (
    *_family("bandit", "SimpleBandit", 10_000, _MAPPINGS),
    *_family(
        "cartpole",
        "Cartpole",
        1_000,
        _SEEDS,
        _CREDIT + _GENERALIZATION,
        _GENERALIZATION,
    ),
    BsuiteExperiment(
        "cartpole_swingup",
        "CartpoleSwingup",
        1_000,
        _EXPLORATION + _GENERALIZATION,
        _SWINGUP,
    ),
    *_family("catch", "Catch", 10_000, _SEEDS, _CREDIT, _CREDIT),
    BsuiteExperiment("deep_sea", "DeepSea", 10_000, _EXPLORATION, _DEPTHS),
    BsuiteExperiment(
        "deep_sea_stochastic",
        "DeepSea",
        10_000,
        _EXPLORATION + _NOISE,
        _DEPTHS,
        {"deterministic": False},
    ),
    BsuiteExperiment(
        "discounting_chain", "DiscountingChain", 1_000, _CREDIT, _MAPPINGS
    ),
    BsuiteExperiment(
        "memory_len",
        "MemoryChain",
        10_000,
        ("memory",),
        _vary("memory_length", _TO_HUNDRED),
        {"num_bits": 1},
    ),
    BsuiteExperiment(
        "memory_size",
        "MemoryChain",
        10_000,
        ("memory",),
        _vary("num_bits", (*_LOG_SPACED, 30, 40)),
        {"memory_length": 2},
    ),
    *_family("mnist", "MNISTBandit", 10_000, _SEEDS, _GENERALIZATION, _GENERALIZATION),
    *_family(
        "mountain_car", "MountainCar", 1_000, _SEEDS, _GENERALIZATION, _GENERALIZATION
    ),
    BsuiteExperiment(
        "umbrella_distract",
        "UmbrellaChain",
        10_000,
        _CREDIT + _NOISE,
        _vary("n_distractor", _TO_HUNDRED),
        {"chain_length": 20},
    ),
    BsuiteExperiment(
        "umbrella_length",
        "UmbrellaChain",
        10_000,
        _CREDIT + _NOISE,
        tuple({"chain_length": length, "n_distractor": 20} for length in _TO_HUNDRED),
    ),
)
EXPERIMENTS: Mapping[str, BsuiteExperiment] = {each.name: each for each in _EXPERIMENTS}


def select_ids(words: Sequence[str]) -> list[tuple[str, int]]:
    """The ids that words name, in the table's order: ids, experiments, tags; or all."""
    chosen = {each for word in words for each in _expand(word)}
    return [
        (name, index)
        for name, experiment in EXPERIMENTS.items()
        for index in range(len(experiment.settings))
        if not words or (name, index) in chosen
    ]


def _expand(word: str) -> list[tuple[str, int]]:
    name, slash, number = word.partition("/")
    experiment = EXPERIMENTS.get(name)
    if experiment is not None and slash:
        count = len(experiment.settings)
        if not number.isdecimal() or int(number) >= count:
            raise RlcliError(
                f"there is no bsuite id `{word}`",
                f"`{name}` has the ids `{name}/0` to `{name}/{count - 1}`",
            )
        return [(name, int(number))]
    names = [name for name, each in EXPERIMENTS.items() if word in (name, *each.tags)]
    if not names:
        message = f"bsuite has no id, experiment or tag `{word}`"
        raise RlcliError(message, suggest(word, [*EXPERIMENTS, *TAGS]))
    return [
        (name, index)
        for name in names
        for index in range(len(EXPERIMENTS[name].settings))
    ]


def group_ids(ids: Sequence[tuple[str, int]]) -> list[IdGroup]:
    """Groups consecutive ids with equal settings."""
    groups: list[IdGroup] = []
    for name, index in ids:
        settings = EXPERIMENTS[name].settings
        last = groups[-1] if groups else None
        if (
            last is not None
            and last.experiment == name
            and last.indices[-1] == index - 1
            and settings[index] == settings[index - 1]
        ):
            groups[-1] = last._replace(indices=(*last.indices, index))
        else:
            same = [each for each in settings[:index] if each == settings[index]]
            groups.append(IdGroup(name, (index,), len(same)))
    return groups
