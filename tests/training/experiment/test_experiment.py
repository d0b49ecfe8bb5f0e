"""The experiment: what happens between two chunks, and that it changes nothing."""

import functools
import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.environments.episode_info import ROW_FIELDS
from rlcli.evaluation import films
from rlcli.loop import Loop, make_loop
from rlcli.loop.progress import RESET, Setup, stream_key
from rlcli.monitor import Monitor
from rlcli.runs import checkpoint, snapshots
from rlcli.runs.run_folder import Run
from rlcli.runs.snapshots import Policies
from rlcli.training.experiment.best_policies import Scores
from rlcli.training.experiment.experiment import ActiveRun, Experiment
from rlcli.training.run_writer import write_run
from rlcli.training.stopping.signals import Signals
from rlcli.types import Core, TimeStep

CLOCKS = {"dt", "steps_per_second", "updates_per_second", "time"}
DATA = {
    "environment": {"name": "CartPole-v1", "num_envs": 3},
    "network": {"name": "mlp", "layers": [8]},
    "policy": {
        "name": "epsilon_greedy",
        "epsilon": {"from": 1.0, "to": 0.0, "over": 90},
    },
    "replay": {"name": "uniform", "capacity": 300, "batch_size": 4},
    "updater": "q_learning",
    "train": {
        "steps": 100,
        "seeds": 2,
        "seed": 4,
        "start": 30,
        "updates": {"per_step": 0.25},
    },
}
NEVER = {"log": {"every": None}, "checkpoint": {"every": None}}


@functools.cache
def program() -> tuple[Setup, Loop]:
    """Periods and lengths do not change the program: compiled once, for all tests."""
    setup = build(recipe.load_recipe(DATA))._replace(devices=1)
    return setup, make_loop(setup)


def experiment_of(**train) -> Experiment:
    data = {**DATA, "train": {**DATA["train"], **train}}
    setup, loop = program()
    found = Experiment(recipe.load_recipe(data), setup)
    found.program.loop = loop
    return found


def run_reports(experiment: Experiment, chunks=None):
    """All reports of a run, from where it stands to its end or that of `chunks`."""
    if experiment.iteration == 0:
        experiment.program.begin()
    reports = []
    for most in chunks or itertools.repeat(1_000):
        if experiment.is_finished:
            break
        reports.append((experiment.advance(most), experiment.step))
    return reports


def rows_of(reports) -> list[dict]:
    """All rows, without the fields that tell of the clock."""
    return [
        {key: value for key, value in row.items() if key not in CLOCKS}
        for report, _ in reports
        for row in [*report.rows, *report.evaluation]
    ]


def leaves_of(experiment: Experiment) -> dict[str, bytes]:
    program = experiment.program
    leaves = checkpoint.flatten_tree(program.loop.save(program.progress))
    return {name: leaf.tobytes() for name, leaf in leaves.items()}


def at_or_past(period: int, total: int, iteration: int = 3) -> list[int]:
    """By hand: the ends of the first iterations at or past each multiple."""
    ends = range(iteration, total + 1, iteration)
    multiples = range(period, total + 1, period)
    return sorted(
        {next(end for end in ends if end >= m) for m in multiples if m <= ends[-1]}
    )


@pytest.mark.slow
def test_a_row_has_what_the_environment_logs_of_the_last_episode():
    data = {
        "environment": {"name": "bsuite/SimpleBandit", "num_envs": 2},
        "network": "table",
        "updater": "q_learning",
        "train": {"steps": 60, "seeds": 3, "devices": 2, "log": {"every": 20}},
    }
    parsed = recipe.load_recipe(data)
    rows = rows_of(run_reports(Experiment(parsed, build(parsed))))
    assert [row["seed"] for row in rows] == 3 * [0, 1, 2]
    for row in rows:
        assert row["regret"] == pytest.approx(1 - row["G"], abs=1e-6)
    assert len({row["regret"] for row in rows}) > 1


@pytest.mark.slow
def test_a_run_ends_with_the_last_whole_iteration_within_its_steps():
    experiment = experiment_of(**NEVER)
    run_reports(experiment, itertools.cycle([7, 1, 4]))
    assert experiment.step == experiment.total_steps == 99
    assert int(experiment.program.progress.iteration) == experiment.iteration == 33


@pytest.mark.slow
def test_every_period_acts_at_the_end_of_the_iteration_at_or_past_each_multiple():
    experiment = experiment_of(
        log={"every": 10},
        checkpoint={"every": 25},
        evaluate={"every": 40, "episodes": 1},
    )
    reports = run_reports(experiment, itertools.cycle([5, 2, 1]))
    logged = sorted({row["T"] for report, _ in reports for row in report.rows})
    saved = [step for report, step in reports if report.is_checkpoint_due]
    evaluated = [step for report, step in reports if report.evaluation]
    assert logged == at_or_past(10, 99) == [12, 21, 30, 42, 51, 60, 72, 81, 90]
    assert saved == at_or_past(25, 99) == [27, 51, 75]
    assert evaluated == at_or_past(40, 99) == [42, 81]
    for report, step in reports:
        points = [row["T"] for row in report.rows]
        assert points == sorted([*{*points}] * 2)  # a row for each of two seeds
        assert all(point <= step for point in points)
        assert [row["seed"] for row in report.rows] == [4, 5] * (len(points) // 2)


@pytest.mark.slow
def test_an_evaluation_at_the_last_step_is_made_at_the_end_of_the_last_iteration():
    experiment = experiment_of(evaluate={"every": 50, "episodes": 1}, **NEVER)
    reports = run_reports(experiment, itertools.cycle([5, 2, 1]))
    assert [step for report, step in reports if report.evaluation] == [51, 99]


@pytest.mark.slow
def test_a_period_beyond_the_steps_never_comes_and_null_switches_off():
    reports = run_reports(
        experiment_of(log={"every": 1_000}, evaluate=None, checkpoint={"every": None})
    )
    assert len(reports) == 1
    assert rows_of(reports) == []
    assert not reports[0][0].is_checkpoint_due


@pytest.mark.slow
def test_watching_a_run_and_cutting_it_up_changes_nothing_of_it():
    unwatched = experiment_of(**NEVER)
    run_reports(unwatched)
    watched = experiment_of(
        log={"every": 1},
        evaluate={"every": 20, "episodes": 3},
        checkpoint={"every": 7},
    )
    run_reports(watched, itertools.cycle([1, 3]))
    assert leaves_of(watched) == leaves_of(unwatched)


@pytest.mark.slow
def test_rows_do_not_depend_on_how_the_run_is_cut_into_chunks():
    # A quarter of an update a step: some chunks make none.
    periods = {"log": {"every": 10}, "checkpoint": {"every": None}}
    whole = rows_of(run_reports(experiment_of(**periods)))
    assert rows_of(run_reports(experiment_of(**periods), itertools.repeat(1))) == whole
    assert len(whole) == 18


def test_rows_say_where_every_seed_stands():
    reports = run_reports(experiment_of(log={"every": 10}, checkpoint={"every": None}))
    rows = [row for row in rows_of(reports) if row["seed"] == 4]
    for row in rows:
        steps = row["T"]
        # As it is at the end of the iteration.
        assert row["policy.epsilon"] == pytest.approx(
            max(0.0, 1 - steps / 90), abs=1e-6
        )
        updates = max(0, steps // 3 - 10) * 3 // 4
        assert row["updates"] == updates
        assert ("loss" in row) == (updates > 0)
        assert row["ep"] == 0 or row["avg_r"] == 1  # CartPole pays 1 for every step
    assert {"loss", "td_error", "q", "gradient_norm"} <= set(rows[-1])
    assert rows[-1]["ep"] > 0
    assert all(np.isfinite(value) for value in rows[-1].values())
    assert all("time" in row for report, _ in reports for row in report.rows)
    metrics = {"loss", "td_error", "q", "gradient_norm"}
    assert {name for name in rows[-1] if "." not in name} - metrics < ROW_FIELDS


def test_episodes_and_lengths_add_up_to_the_steps_that_were_made():
    experiment = experiment_of(steps=3_000, **NEVER)
    run_reports(experiment)
    statistics = experiment.program.progress.statistics
    unfinished = np.asarray(statistics.running_length).sum(axis=1)
    assert np.all(unfinished > 0)
    # Nine steps at least until the pole can have fallen.
    assert np.all(np.asarray(statistics.episodes) * 8 + unfinished < 3_000)


@pytest.mark.slow
@pytest.mark.parametrize("middle", [27, 33, 60])
def test_a_restored_experiment_continues_with_the_same_results(middle, tmp_path):
    periods = {
        "log": {"every": 10},
        "evaluate": {"every": 20, "episodes": 2},
        "checkpoint": {"every": None},
    }
    whole = experiment_of(**periods)
    expected = rows_of(run_reports(whole))
    run, other = Run(tmp_path / "cut"), Run(tmp_path / "whole")
    run.folder.mkdir()
    other.folder.mkdir()
    first = experiment_of(**periods)
    before = run_reports(first, [1] * (middle // 3))
    first.save_checkpoint(run)
    second = experiment_of(**periods)
    saved = snapshots.read_checkpoint(run.latest_checkpoint())
    assert second.program.restore(saved) == ""
    second.restore(saved, run)
    assert second.step == middle
    assert rows_of(before) + rows_of(run_reports(second)) == expected
    assert leaves_of(second) == leaves_of(whole)
    whole.save_checkpoint(other)
    second.save_checkpoint(run)
    files = ["policy.pkl.lz4", "best.pkl.lz4", "checkpoints/000000099.pkl.lz4"]
    for name in files:
        assert (run.folder / name).read_bytes() == (other.folder / name).read_bytes()


@pytest.mark.slow
def test_evaluations_are_the_same_whenever_they_are_made_and_for_any_periods():
    often = experiment_of(evaluate={"every": 10, "episodes": 2}, **NEVER)
    seldom = experiment_of(evaluate={"every": 30, "episodes": 2}, **NEVER)
    many, few = (
        {
            (row["T"], row["seed"]): row["evaluation"]
            for row in rows_of(run_reports(each))
        }
        for each in (often, seldom)
    )
    assert set(few) == {(t, seed) for t in (30, 60, 90) for seed in (4, 5)}
    assert {key: many[key] for key in few} == few


@pytest.mark.slow
def test_an_evaluation_beyond_two_billion_steps_has_random_numbers_too():
    experiment = experiment_of(evaluate={"every": 10, "episodes": 2}, **NEVER)
    program = experiment.program
    program.begin()
    expected = program.evaluate()
    program.iteration = (
        2**40 // program.setup.steps_per_iteration * program.setup.steps_per_iteration
    )
    assert program.evaluation_index < 2**31 < program.step
    assert np.all(program.evaluate().lengths > 0)
    program.iteration = 0
    np.testing.assert_array_equal(program.evaluate().returns, expected.returns)


def test_the_best_policy_of_each_seed_is_that_of_its_own_best_evaluation():
    experiment = experiment_of(evaluate={"every": 10, "episodes": 2}, **NEVER)
    acting, found = {}, {}
    experiment.program.begin()
    while not experiment.is_finished:
        report = experiment.advance(1)
        for index, row in enumerate(report.evaluation):
            mean = row["evaluation"]["mean"]
            if index not in found or mean > found[index][0]:  # the first of equals
                found[index] = (mean, experiment.step)
                leaves = checkpoint.flatten_tree(experiment.acting_state())
                acting[index] = {name: leaf[index] for name, leaf in leaves.items()}
    best = experiment.scores.best
    assert list(zip(best.returns, best.steps, strict=True)) == [found[0], found[1]]
    for index, leaves in acting.items():
        for name, leaf in leaves.items():
            np.testing.assert_array_equal(best.acting[name][index], leaf)


def test_a_return_that_is_not_finite_is_not_the_best():
    scores, step = Scores({}), np.zeros(2, int)
    for value, best in ((np.nan, -np.inf), (5, 5), (np.inf, 5), (9, 9), (np.nan, 9)):
        acting = {"params": np.full((2, 2), value)}
        means = np.full(2, value, np.float32)
        is_active = np.array([True, True])
        scores.record(Policies(means, step, step, acting), is_active, [{}, {}])
        assert [*scores.best.returns] == [best, best]
    assert (scores.best.acting["params"] == 9).all()


def test_the_goal_may_be_a_number_of_info_and_of_all_seeds_that_are_not_frozen():
    def reach(goals, numbers, is_active=(True, True)):
        scores, step = Scores(goals), np.zeros(2, int)
        policies = Policies(np.zeros(2), step, step, {})
        scores.record(policies, np.array(is_active), numbers)
        return scores.has_reached_stop, scores.take_messages()

    seeds = [{"mean": 5.0, "success": 0.9}, {"mean": 5.0, "success": 0.8}]
    assert reach({"success": 0.8}, seeds) == (True, [])
    assert reach({"success": 0.9}, seeds) == (False, [])
    assert reach({"success": 0.9}, seeds, (True, False)) == (True, [])
    assert reach({"success": 0.8, "return": 6}, seeds) == (False, [])
    assert reach({"success": 0.8, "return": 5}, seeds) == (True, [])
    has_reached, (message,) = reach({"succes": 0.8}, seeds)
    assert not has_reached and "waits for `succes`" in message
    assert reach({}, seeds) == (False, [])


@pytest.mark.slow
@pytest.mark.parametrize(("goal", "reached"), [(1, True), (501, False)])
def test_the_goal_is_reached_when_the_evaluation_of_every_seed_has_come_to_it(
    goal, reached
):
    experiment = experiment_of(
        stop={"return": goal}, evaluate={"every": 50, "episodes": 1}, **NEVER
    )
    experiment.program.begin()
    experiment.advance(1_000)
    assert experiment.scores.has_reached_stop is reached


def fragile() -> Core:
    """Half of the seeds are paid what is no number from the 30th step on."""

    def reset(key):
        return (jax.random.uniform(key), jnp.int32(0)), jnp.zeros(1)

    def step(state, action, noise):
        luck, time = state
        bad = (luck > 0.5) & (time == 30)
        reward = jnp.where(bad, jnp.nan, 1.0)
        obs, going = jnp.ones(1), jnp.bool_(False)
        return (luck, time + 1), TimeStep(obs, obs, reward, jnp.float32(1), going, {})

    box = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    space = gymnasium.spaces.Discrete(2)
    return Core(reset, step, box, space, lambda state: None, draw=lambda key: ())


FRAGILE = {
    "environment": f"{__name__}:fragile",
    "network": {"name": "mlp", "layers": [4]},
    "tracer": {"name": "n_step", "gamma": 0.5},
    "updater": "q_learning",
    "optimizer": {"name": "sgd", "learning_rate": 0.1},
    "train": {"steps": 60, "seeds": 4, "log": {"every": 10}},
}


def fragile_run(**changes) -> Experiment:
    parsed = recipe.load_recipe({**FRAGILE, **changes})
    experiment = Experiment(parsed, build(parsed))
    experiment.program.begin()
    return experiment


def lucky(seed: int) -> bool:
    key = jax.random.fold_in(stream_key(seed, RESET), 0)  # of its only environment
    return float(jax.random.uniform(key)) <= 0.5


@pytest.fixture(scope="module")
def half_frozen():
    experiment = fragile_run()
    reports = []
    while not experiment.is_finished:
        reports.append(experiment.advance(7))
    return experiment, reports


@pytest.mark.slow  # quick in `test_frozen.py`, in the files of a run
def test_a_seed_whose_loss_is_no_number_is_marked_and_the_others_go_on(half_frozen):
    experiment, reports = half_frozen
    unlucky = [seed for seed in range(4) if not lucky(seed)]
    assert 0 < len(unlucky) < 4
    messages = [message for report in reports for message in report.messages]
    # The 31st step pays no number; the update that sees it is the 30th from 0.
    assert messages == [
        f"seed {seed} is frozen: the loss is not finite at update 30, by step 31: "
        f"environment `{FRAGILE['environment']}` returned a reward that is not finite "
        "(environment 0, step 31)"
        for seed in unlucky
    ]
    assert experiment.failure == ""
    rows = [row for report in reports for row in report.rows]
    assert {row["seed"] for row in rows if "frozen" in row} == set(unlucky)
    assert {row["T"] for row in rows if "frozen" in row} == {40, 50, 60}


@pytest.mark.slow
def test_a_frozen_seed_keeps_its_last_good_parameters(half_frozen):
    experiment, _ = half_frozen
    before = fragile_run()
    while before.step < 30:
        before.advance(min(7, 30 - before.step))
    first, last = (
        checkpoint.flatten_tree(each.acting_state()) for each in (before, experiment)
    )
    for seed in range(4):
        for name, leaf in last.items():
            assert np.all(np.isfinite(leaf))
            if not lucky(seed):
                np.testing.assert_array_equal(leaf[seed], first[name][seed])
        moved = [np.any(leaf[seed] != first[name][seed]) for name, leaf in last.items()]
        assert any(moved) == lucky(seed)


@pytest.mark.slow
def test_the_run_ends_at_once_where_the_recipe_says_so():
    experiment = fragile_run(train={**FRAGILE["train"], "on_nan": "stop"})
    while not experiment.is_finished and not experiment.failure:
        experiment.advance(1)
    assert experiment.step == 31
    assert "the loss is not finite at update 30, by step 31" in experiment.failure


@pytest.mark.slow
def test_when_no_seed_is_left_nothing_is_saved_over_the_last_good_checkpoint(tmp_path):
    absurd = {"name": "sgd", "learning_rate": 1e30}
    updater = {"name": "q_learning", "loss": "mse"}
    experiment = fragile_run(optimizer=absurd, updater=updater)
    run = Run(tmp_path)
    experiment.save_checkpoint(run)  # at step 0
    good = run.policy.read_bytes()
    while not experiment.failure:
        assert not experiment.is_finished
        experiment.advance(1)
    for seed in range(4):
        assert f"seed {seed}: " in experiment.failure
    assert "`q/" in experiment.failure or "the loss" in experiment.failure
    experiment.save_checkpoint(run)
    assert run.policy.read_bytes() == good
    assert [path.name for path in run.checkpoints.iterdir()] == ["000000000.pkl.lz4"]


@pytest.mark.slow
def test_the_step_of_a_failure_does_not_depend_on_when_it_is_detected():
    absurd = {"name": "sgd", "learning_rate": 1e30}
    updater = {"name": "q_learning", "loss": "mse"}
    failures = []
    for most in (1, 1_000):
        experiment = fragile_run(optimizer=absurd, updater=updater)
        while not experiment.failure:
            experiment.advance(most)
        failures.append(experiment.failure)
    assert failures[0] == failures[1]


def test_progress_is_asked_for_in_vain_before_the_beginning():
    with pytest.raises(ValueError, match="begun"):
        assert experiment_of().program.progress


@pytest.mark.parametrize(
    "rates", [{}, {"optimizer.learning_rate": (0.1, 0.2)}], ids=["shared", "own"]
)
@pytest.mark.slow
def test_a_film_in_training_is_the_evaluation_of_the_first_seed(
    tmp_path, monkeypatch, rates
):
    shown = []
    monkeypatch.setattr(films, "write_film", lambda _, frames, __: shown.extend(frames))
    parsed = recipe.load_recipe(DATA)
    setup = build(parsed)
    setup = setup._replace(devices=1, numbers={**setup.numbers, **rates})
    experiment = Experiment(parsed, setup)
    experiment.program.begin()
    member = ActiveRun(Run(tmp_path), experiment)
    with write_run(member, None, Signals(), Monitor(title="", quiet=True)) as writer:
        writer.film_evaluation()
    assert len(shown) == experiment.program.evaluate().lengths[0, 0] + 1


def test_rows_of_the_first_chunk_have_no_speeds_since_it_compiles():
    experiment = experiment_of(log={"every": 8})
    reports = run_reports(experiment, [4, 1_000])
    rows = [[*report.rows] for report, _ in reports]
    assert rows[0] and all(row.keys() & CLOCKS == {"time"} for row in rows[0])
    assert all(row.keys() >= CLOCKS for row in rows[1])
    times = [row["time"] for row in rows[1]]
    rates = [row["steps_per_second"] for row in rows[1]]
    seeds = len(experiment.setup.seeds)
    passed = (times[-1] - times[0]) * rates[-1] / seeds
    assert passed == pytest.approx(rows[1][-1]["T"] - rows[1][0]["T"], rel=0.05)
