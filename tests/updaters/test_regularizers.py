"""Regularizers: the policy is kept near another one."""

import jax
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats

from rlcli import recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.training.experiment.experiment import Experiment
from rlcli.updaters.__init__ import default_distribution
from rlcli.updaters.regularizers import fill_defaults, initial_groups, penalties
from rlcli.xla.tree_paths import leaves_by_path

NETWORK = {"name": "mlp", "layers": [4]}
PPO = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": NETWORK,
    "updater": {"name": "ppo", "epochs": 2, "minibatches": 2},
    "optimizer": {"name": "adam", "learning_rate": 0.01},
    "train": {"steps": 640, "unroll": 16},
}
SAC = {
    "environment": "Pendulum-v1",
    "network": NETWORK,
    "updater": "sac",
    "replay": {"name": "uniform", "capacity": 256, "batch_size": 16},
    "optimizer": {"name": "adam", "learning_rate": 0.01},
    "train": {"steps": 256, "start": 32},
}


def kl_to(policy, weight):
    return [{"name": "kl", "to": policy, "weight": weight}]


@pytest.mark.parametrize("policy", ["old", "initial"])
def test_the_divergence_is_that_of_the_other_policy_from_the_present_one(policy):
    family = default_distribution(spaces.Discrete(3), "ppo")
    rng = np.random.default_rng(0)
    logits, other = rng.normal(size=(2, 5, 2, 3)).astype(np.float32)
    (term,) = penalties(kl_to(policy, 2.0), family, logits, {policy: other})
    p, q = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (other, logits))
    np.testing.assert_allclose(term.value, 2 * stats.entropy(p, q, axis=-1), rtol=1e-4)


def test_parameters_of_the_start_are_kept_only_where_they_are_needed():
    for policy in ("old", "prior"):
        assert initial_groups(fill_defaults(kl_to(policy, 1.0))) == ()
    assert "policy" in initial_groups(fill_defaults(kl_to("initial", 1.0)))


def train(data, regularizers=None):
    """The learner at the start and at the end of a run, by tree path."""
    updater = data["updater"]
    updater = {"name": updater} if isinstance(updater, str) else updater
    if regularizers is not None:
        updater = {**updater, "regularizers": regularizers}
    parsed = recipe.load_recipe({**data, "updater": updater})
    experiment = Experiment(parsed, build(parsed)._replace(devices=1))
    experiment.program.begin()
    ends = [jax.device_get(leaves_by_path(experiment.program.progress.agent))]
    experiment.advance(1_000)
    ends.append(jax.device_get(leaves_by_path(experiment.program.progress.agent)))
    return ends


def change(ends):
    """The mean change of the outputs of the policy's network, for random inputs."""

    def outputs(leaves, obs):
        prefix = "learner/params/policy/"
        first, last = (
            [leaves[f"{prefix}{layer}/{name}"].squeeze() for name in ("w", "b")]
            for layer in ("linear", "linear_1")
        )
        hidden = np.maximum(obs @ first[0] + first[1], 0)
        return hidden @ last[0] + last[1]

    size = ends[0]["learner/params/policy/linear/w"].shape[-2]
    obs = np.random.default_rng(0).uniform(-0.5, 0.5, (256, size))
    return np.abs(np.subtract(*(outputs(leaves, obs) for leaves in ends))).mean()


@pytest.mark.parametrize("data", [PPO, SAC], ids=["ppo", "sac"])
@pytest.mark.slow
def test_the_initial_policy_stays_and_holds_the_present_one(data):
    free, held = (train(data, kl_to("initial", weight)) for weight in (0.0, 100.0))
    for start, end in (free, held):
        paths = [path for path in start if "learner/initial/policy/" in path]
        assert paths
        for path in paths:
            params = path.replace("initial/", "params/")
            np.testing.assert_array_equal(start[path], start[params])
            np.testing.assert_array_equal(start[path], end[path])
    assert change(held) < change(free) / 3


@pytest.mark.parametrize("data", [PPO, SAC], ids=["ppo", "sac"])
@pytest.mark.slow
def test_without_weight_nothing_changes(data):
    (_, ends), (_, others) = (train(data, r) for r in ([], kl_to("initial", 0.0)))
    for path, leaf in ends.items():
        if "params/" in path:
            np.testing.assert_allclose(leaf, others[path], rtol=1e-4, atol=1e-6)


def test_a_network_with_memory_has_no_initial_policy_to_compare_with():
    network = {**NETWORK, "memory": {"name": "gru", "size": 4}}
    with pytest.raises(RlcliError, match="does not support memory"):
        train({**PPO, "network": network}, kl_to("initial", 1.0))
