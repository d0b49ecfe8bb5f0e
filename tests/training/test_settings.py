"""Settings: the current values of options in the metrics, by place in the recipe."""

import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.training.experiment.experiment import Experiment

HALVED = {"from": 1.0, "to": 0.0}
SEEN = 1 - 39 / 80  # by the 40th update, whose unroll began at step 39 of 80
DATA = {
    "environment": "CartPole-v1",
    "network": {"name": "mlp", "layers": [4]},
    "policy": {"name": "epsilon_greedy", "epsilon": 0.25},
    "tracer": {"name": "n_step", "gamma": HALVED},
    "replay": {"name": "prioritized", "capacity": 64, "beta": HALVED},
    "updater": "q_learning",
    "train": {"steps": 80, "start": 10, "log": {"every": 40}},
}


def settings(optimizer) -> dict[str, float]:
    """The settings in the metrics of half a run."""
    read = recipe.load_recipe({**DATA, "optimizer": optimizer})
    experiment = Experiment(read, build(read))
    experiment.program.begin()
    (row,) = experiment.advance(40).rows
    return {name: value for name, value in row.items() if "." in name}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "rates"),
    [
        (
            {"name": "sgd", "learning_rate": {"from": 0.1, "to": 0.0}},
            {"optimizer.learning_rate": 0.1 * SEEN},
        ),
        pytest.param(
            {
                "default": {"name": "sgd", "learning_rate": 0.1},
                "q": {"name": "sgd", "learning_rate": {"from": 0.2, "to": 0.0}},
            },
            {"optimizer.q.learning_rate": 0.2 * SEEN},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_settings_carry_the_name_of_their_part(optimizer, rates):
    expected = {
        "policy.epsilon": 0.25,  # also without a schedule; not that of the replay
        "replay.beta": SEEN,
        "tracer.gamma": SEEN,
        **rates,
    }
    assert settings(optimizer) == pytest.approx(expected, rel=1e-5)
