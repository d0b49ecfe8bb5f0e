"""CMA-ES that is refitted from the trials, compared with Optuna's own sampler."""

import math
import pickle

import numpy as np
import pytest

optuna = pytest.importorskip("optuna")
pytest.importorskip("cmaes")

from rlcli.studies.search.cmaes_sampler import (  # noqa: E402
    GENERATION,
    choose_numbers,
    fit,
)
from rlcli.studies.search.space import load_space  # noqa: E402

SPACE = {
    "a": {"log_uniform": [1e-4, 1e-1]},
    "b": {"uniform": [-1, 3]},
    "c": {"int": [1, 9], "step": 2},
    "d": {"int": [4, 400], "log": True},
    "kind": {"choice": ["x", "y"]},
}
SPACE["e"] = {"uniform": [0, 1], "when": {"kind": "x"}}
STATE = "cma:optimizer"  # Optuna's attributes
NUMBERS = ["a", "b", "c", "d"]


def suggest(trial):
    values = {
        "a": trial.suggest_float("a", 1e-4, 1e-1, log=True),
        "b": trial.suggest_float("b", -1, 3),
        "c": trial.suggest_int("c", 1, 9, step=2),
        "d": trial.suggest_int("d", 4, 400, log=True),
    }
    if trial.suggest_categorical("kind", ["x", "y"]) == "x":
        values["e"] = trial.suggest_float("e", 0, 1)
    return values


def ask(study, space, number):
    """Begins a trial as a sweep does: Optuna samples what is not chosen."""
    states = (optuna.trial.TrialState.COMPLETE,)
    complete = study.get_trials(states=states)
    chosen = choose_numbers(space, complete, number, is_maximized=False)
    study.enqueue_trial(*chosen)
    study.sampler = optuna.samplers.RandomSampler(seed=number)
    return study.ask()


def loss(values):
    return (
        (math.log10(values["a"]) + 2.5) ** 2
        + (values["b"] - 1) ** 2
        + (values["c"] - 5) ** 2 / 9
        + math.log(values["d"] / 40) ** 2
    )


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.parametrize("is_maximized", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_the_state_is_that_of_optuna_after_the_same_trials(is_maximized):
    """Optuna keeps its state as a pickle among the attributes of trials."""
    sign = -1 if is_maximized else 1
    direction = "maximize" if is_maximized else "minimize"
    sampler = optuna.samplers.CmaEsSampler(seed=3, warn_independent_sampling=False)
    study = optuna.create_study(sampler=sampler, direction=direction)
    space = load_space({key: SPACE[key] for key in NUMBERS})
    study.optimize(lambda trial: sign * loss(suggest_numbers(trial)), n_trials=60)
    trials = study.get_trials()
    for each in trials:  # the attribute in which Optuna keeps the generation
        if (generation := each.system_attrs.get("cma:generation")) is not None:
            each.user_attrs[GENERATION] = generation
    pieces = next(
        each
        for each in (
            {key: text for key, text in each.system_attrs.items() if STATE in key}
            for each in reversed(trials)
        )
        if each
    )
    state = "".join(pieces[f"{STATE}:{index}"] for index in range(len(pieces)))
    expected = pickle.loads(bytes.fromhex(state))
    found = fit(space.options, trials, 0, is_maximized=is_maximized)
    assert found.generation == expected.generation >= 6
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(found._sigma, expected._sigma, rtol=1e-9)
    np.testing.assert_allclose(found._C, expected._C, rtol=1e-7, atol=1e-12)


def suggest_numbers(trial):
    return {
        "a": trial.suggest_float("a", 1e-4, 1e-1, log=True),
        "b": trial.suggest_float("b", -1, 3),
        "c": trial.suggest_int("c", 1, 9, step=2),
        "d": trial.suggest_int("d", 4, 400, log=True),
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_approaches_the_optimum_and_depends_on_trials_and_seeds_only():
    space = load_space(SPACE)

    def run(restarts):
        study = optuna.create_study()
        for number in range(120):
            if number % 7 == 0 and restarts:  # another process
                kept, study = study, optuna.create_study()
                study.add_trials(kept.get_trials())
            trial = ask(study, space, number)
            study.tell(trial, loss(suggest(trial)))
        return [(each.params, each.value) for each in study.get_trials()]

    found = run(False)
    assert found == run(True)
    values = [pair for params, _ in found for pair in params.items()]
    assert all(space[key].contains(value) for key, value in values)
    best = sorted(value for _, value in found[60:])
    assert np.median(best) < 0.2 < np.median([value for _, value in found[:15]])
    assert {"e" in params for params, _ in found} == {True, False}


def test_it_writes_numbers_only():
    study = optuna.create_study()
    for number in range(30):
        trial = ask(study, load_space(SPACE), number)
        study.tell(trial, loss(suggest(trial)))
    attributes = [each.user_attrs for each in study.get_trials()]
    assert attributes[0] == {}  # before the first result
    assert all(set(each) == {GENERATION} for each in attributes[1:])
    chosen = [each.system_attrs for each in study.get_trials()]
    assert all(set(each) == {"fixed_params"} for each in chosen)
    values = [value for each in chosen for value in each["fixed_params"].values()]
    assert {*map(type, values)} == {int, float}
    assert attributes[-1][GENERATION] >= 2


@pytest.mark.parametrize(
    ("option", "pairs"),
    [
        ({"uniform": [-1, 3]}, {-1.0: 0.0, 0.0: 0.25, 3.0: 1.0}),
        ({"log_uniform": [1e-4, 1]}, {1e-4: 0.0, 1e-2: 0.5, 1.0: 1.0}),
        ({"int": [0, 3]}, {0: 1 / 8, 1: 3 / 8, 2: 5 / 8, 3: 7 / 8}),
        ({"int": [1, 5], "step": 2}, {1: 1 / 6, 3: 3 / 6, 5: 5 / 6}),
    ],
)
def test_numbers_have_equal_shares_of_their_range(option, pairs):
    read = load_space({"x": option})["x"]
    for value, share in pairs.items():
        assert read.to_share(value) == pytest.approx(share)
        assert read.from_share(share) == pytest.approx(value)
    assert (read.from_share(0.0), read.from_share(1.0)) == (read.low, read.high)
