"""Numbers: options that are arguments of the compiled program."""

import jax
import numpy as np
import pytest

from rlcli import loop
from rlcli.assembly import build
from rlcli.loop.log import MAX_LOG_POINTS
from rlcli.recipe import load_recipe
from rlcli.tracers.multi_step import n_step
from rlcli.training.experiment.program import Program

DQN = {
    "environment": "CartPole-v1",
    "network": "linear",
    "policy": {"name": "epsilon_greedy", "epsilon": {"from": 1.0, "to": 0.1}},
    "tracer": {"name": "n_step", "gamma": 0.99},
    "replay": {"name": "prioritized", "capacity": 64, "batch_size": 8},
    "updater": {"name": "munchausen", "target": {"every": 10}},
    "optimizer": {"name": "adam", "learning_rate": 0.01, "clip_norm": 5.0},
    "train": {"steps": 1_000},
}
PPO = {
    "environment": "Pendulum-v1",
    "network": "linear",
    "tracer": {"name": "lambda_return", "gamma": 0.99, "lambda": 0.95},
    "updater": {"name": "ppo", "minibatches": 1, "epochs": 1},
    "train": {"steps": 1_000, "unroll": 8},
}


def program(data, *sets: str) -> str:
    """The program of a chunk, before compilation."""
    engine = loop.make_loop(build(load_recipe(data, sets)))
    progress = jax.eval_shape(engine.begin)
    return jax.jit(engine.advance, static_argnums=1).lower(progress, 3).as_text()


@pytest.mark.parametrize(
    ("data", "sets"),
    [
        (
            DQN,
            [
                "policy.epsilon.to=0.2",
                "policy.epsilon.over=300",
                "replay.alpha=0.3",
                "updater.temperature=0.5",
                "optimizer.learning_rate=0.02",
                "optimizer.clip_norm=1.5",
                "tracer.gamma=0.9",
            ],
        ),
        pytest.param(
            PPO,
            [
                "updater.clip_ratio=0.1",
                "updater.value_weight=0.7",
                "tracer.gamma=0.9",
                "tracer.lambda=0.8",
            ],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["dqn", "ppo"],
)
def test_other_numbers_need_no_other_program(data, sets):
    assert program(data, *sets) == program(data)


@pytest.mark.slow
def test_other_numbers_need_no_other_program_for_the_rows_of_metrics():
    def rows(*sets: str) -> str:
        parsed = load_recipe(DQN, sets)
        run = Program(parsed, build(parsed))
        progress = jax.eval_shape(run.loop.begin)
        _, log = jax.eval_shape(lambda state: run.loop.advance(state, 3), progress)
        summarize = jax.jit(run._summarize)
        points = jax.ShapeDtypeStruct((MAX_LOG_POINTS,), np.int32)
        inputs = progress._replace(environment=()), log, points
        return summarize.lower(*inputs).as_text()

    assert rows("policy.epsilon.to=0.2", "policy.epsilon.over=300") == rows()


def test_zero_and_one_are_constants():
    numbers = build(load_recipe(PPO, ["tracer.lambda=1.0"])).numbers
    assert "tracer.gamma" in numbers
    assert "tracer.lambda" not in numbers


def test_numbers_are_those_of_the_recipe_by_their_places():
    numbers = build(load_recipe(DQN)).numbers
    assert numbers["policy.epsilon.to"] == 0.1
    assert numbers["policy.epsilon.over"] == 1_000  # 100 % of the steps
    assert numbers["optimizer.learning_rate"] == 0.01
    assert numbers["optimizer.clip_norm"] == 5.0
    assert not any(name.startswith("environment") for name in numbers)


def test_each_group_of_parameters_has_its_own_numbers():
    optimizer = {"policy": {"name": "adam", "learning_rate": 0.3}, "value": "sgd"}
    numbers = build(load_recipe({**PPO, "optimizer": optimizer})).numbers
    assert numbers["optimizer.policy.learning_rate"] == 0.3
    assert "optimizer.value.learning_rate" in numbers


@pytest.mark.slow
def test_a_number_has_its_effect():
    """A step of SGD without momentum is proportional to the learning rate."""
    sgd = {"name": "sgd", "learning_rate": 0.25}
    changes = []
    for rate in (0.25, 0.5):
        data = {**PPO, "optimizer": {**sgd, "learning_rate": rate}}
        engine = loop.make_loop(build(load_recipe(data)))
        before = engine.begin()
        params = jax.device_get(before.agent.learner.params)
        after = jax.device_get(engine.advance(before, 1)[0].agent.learner.params)
        changes.append(jax.tree.map(np.subtract, after, params))
    jax.tree.map(
        lambda small, large: np.testing.assert_allclose(2 * small, large, rtol=1e-3),
        *changes,
    )


def test_parts_from_outside_rlcli_receive_python_numbers():
    data = {**PPO, "tracer": {"name": f"{__name__}:strict_tracer", "gamma": 0.5}}
    setup = build(load_recipe(data))
    assert "tracer.gamma" not in setup.numbers
    jax.eval_shape(loop.make_loop(setup).begin)


def strict_tracer(*, gamma: float = 0.9):
    """A tracer that computes with its option in Python."""
    assert isinstance(gamma, float)
    return n_step(n=1, gamma=gamma)
