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
_LOG_SPACED = (*range(1, 11), 12, 14, 17, 20, 25)
_TO_HUNDRED = (*_LOG_SPACED, *range(30, 105, 10))
_WRAPPERS = {  # of a setting, by its name in bsuite
    "noise_scale": lambda value: {"name": "reward_noise", "scale": value},
    "reward_scale": lambda value: {"name": "scale_reward", "factor": value},
}


class BsuiteEnvironment(NamedTuple):
    """An environment of bsuite."""

    name: str  # without `bsuite/`
    episodes: int  # of a run
    # The steps of the longest episode, given its options.
    max_length: Callable[[Mapping[str, Any]], int]


class BsuiteExperiment(NamedTuple):
    """An experiment of bsuite."""

    name: str
    environment: BsuiteEnvironment
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
        name = f"bsuite/{self.environment.name}"
        return {"name": name, **own, **self.fixed, "wrappers": wrappers}

    def max_length(self, index: int) -> int:
        """The steps of the longest episode of an id."""
        return self.environment.max_length(self.options(index))


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
    environment: BsuiteEnvironment,
    plain: Settings,
    tags: tuple[str, ...] = (),
    variant_tags: tuple[str, ...] = (),
) -> Iterator[BsuiteExperiment]:
    """A basic experiment and its variants with reward noise and with scaled rewards."""
    yield BsuiteExperiment(name, environment, ("basic", *tags), plain)
    mappings = [{}] * 4
    if "mapping_seed" in plain[0]:
        mappings = [{"mapping_seed": seed} for seed in range(4)]
    for variant, key, values in (
        ("noise", "noise_scale", (0.1, 0.3, 1.0, 3.0, 10.0)),
        ("scale", "reward_scale", (0.001, 0.03, 1.0, 30.0, 1_000.0)),
    ):
        settings = tuple(
            {key: value, "seed": None, **mapping}
            for value in values
            for mapping in mappings
        )
        own = (variant, *variant_tags)
        yield BsuiteExperiment(f"{name}_{variant}", environment, own, settings)


_BANDIT = BsuiteEnvironment("SimpleBandit", 10_000, lambda options: 1)
_CARTPOLE = BsuiteEnvironment("Cartpole", 1_000, lambda options: 1_001)
_SWINGUP = BsuiteEnvironment("CartpoleSwingup", 1_000, lambda options: 1_001)
_CATCH = BsuiteEnvironment("Catch", 10_000, lambda options: 9)
_SEA = BsuiteEnvironment("DeepSea", 10_000, lambda options: options["size"])
_CHAIN = BsuiteEnvironment("DiscountingChain", 1_000, lambda options: 100)
_MEMORY = BsuiteEnvironment("MemoryChain", 10_000, lambda o: o["memory_length"] + 1)
MNIST = BsuiteEnvironment("MNISTBandit", 10_000, lambda options: 1)
_CAR = BsuiteEnvironment("MountainCar", 1_000, lambda options: 1_000)
_UMBRELLA = BsuiteEnvironment("UmbrellaChain", 10_000, lambda o: o["chain_length"])
_DEPTHS: Settings = tuple(
    {"size": size, "mapping_seed": 42} for size in range(10, 51, 2)
)
_THRESHOLDS: Settings = tuple(
    {"height_threshold": n / 20, "x_reward_threshold": 1 - n / 20} for n in range(20)
)
_LENGTHS: Settings = tuple(
    {"chain_length": length, "n_distractor": 20} for length in _TO_HUNDRED
)
_SEEDS, _MAPPINGS = _vary("seed", [None] * 20), _vary("mapping_seed", range(20))
_CREDIT, _EXPLORATION = ("credit_assignment",), ("exploration",)
_GENERAL, _NOISE = ("generalization",), ("noise",)
_EXPERIMENTS = (
    *_family("bandit", _BANDIT, _MAPPINGS),
    *_family("cartpole", _CARTPOLE, _SEEDS, _CREDIT + _GENERAL, _GENERAL),
    BsuiteExperiment(
        "cartpole_swingup", _SWINGUP, _EXPLORATION + _GENERAL, _THRESHOLDS
    ),
    *_family("catch", _CATCH, _SEEDS, _CREDIT, _CREDIT),
    BsuiteExperiment("deep_sea", _SEA, _EXPLORATION, _DEPTHS),
    BsuiteExperiment(
        "deep_sea_stochastic",
        _SEA,
        _EXPLORATION + _NOISE,
        _DEPTHS,
        {"deterministic": False},
    ),
    BsuiteExperiment("discounting_chain", _CHAIN, _CREDIT, _MAPPINGS),
    BsuiteExperiment(
        "memory_len",
        _MEMORY,
        ("memory",),
        _vary("memory_length", _TO_HUNDRED),
        {"num_bits": 1},
    ),
    BsuiteExperiment(
        "memory_size",
        _MEMORY,
        ("memory",),
        _vary("num_bits", (*_LOG_SPACED, 30, 40)),
        {"memory_length": 2},
    ),
    *_family("mnist", MNIST, _SEEDS, _GENERAL, _GENERAL),
    *_family("mountain_car", _CAR, _SEEDS, _GENERAL, _GENERAL),
    BsuiteExperiment(
        "umbrella_distract",
        _UMBRELLA,
        _CREDIT + _NOISE,
        _vary("n_distractor", _TO_HUNDRED),
        {"chain_length": 20},
    ),
    BsuiteExperiment("umbrella_length", _UMBRELLA, _CREDIT + _NOISE, _LENGTHS),
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
