"""`train.data_parallel`: the share of a device, and what cannot be divided."""

import pytest

from rlcli.assembly import build
from rlcli.assembly.shares import check_data_parallel, check_devices
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.types import Updater
from rlcli.xla import processes

PPO = {"environment": {"name": "CartPole-v1", "num_envs": 8}, "updater": "ppo"}
DQN = {**PPO, "updater": "dqn", "replay": {"name": "uniform", "capacity": 800}}


def setup_of(data: dict, seeds: int = 1, **train):
    return build(
        load_recipe({**data, "train": {"steps": 8_000, **train}}), range(seeds)
    )


def test_every_device_builds_the_parts_of_its_share():
    setup = setup_of(DQN, data_parallel=4, start=80)
    whole = setup_of(DQN, start=80)
    assert setup.environment.num_envs == 2
    assert setup.steps_per_iteration == whole.steps_per_iteration
    iterations = range(200)
    assert [*map(setup.agent.count_updates, iterations)] == [
        *map(whole.agent.count_updates, iterations)
    ]


@pytest.mark.parametrize(
    ("data", "train", "message", "hint"),
    [
        (
            PPO,
            {"data_parallel": 3},
            "8 environments cannot be divided equally among the 3 devices",
            "use a multiple of 3, such as 9",
        ),
        (
            {**DQN, "replay": {"name": "uniform", "capacity": 802}},
            {"data_parallel": 4},
            "`replay.capacity: 802` cannot be divided equally among the 4 devices",
            "use a multiple of 4, such as 804",
        ),
        (
            {**DQN, "replay": {"name": "uniform", "batch_size": 30}},
            {"data_parallel": 4},
            "`replay.batch_size: 30` cannot be divided equally",
            "use a multiple of 4, such as 32",
        ),
        (
            {**PPO, "environment": {"name": "gymnasium/CartPole-v1", "num_envs": 8}},
            {"data_parallel": 2},
            "environment `gymnasium/CartPole-v1` runs on the host",
            "remove `data_parallel`",
        ),
        (
            {**PPO, "environment": {**PPO["environment"], "levels": {"count": 4}}},
            {"data_parallel": 2},
            "`levels` cannot be divided among devices",
            "remove `data_parallel`",
        ),
        (
            PPO,
            {"data_parallel": 2, "devices": 1},
            "`devices: 1` is not a multiple of `data_parallel: 2`",
            "use `devices: auto`",
        ),
        (
            {
                **DQN,
                "replay": {"name": "uniform", "capacity": 8, "batch_size": 8},
                "tracer": {"name": "n_step", "n": 5},
            },
            {"data_parallel": 8},
            "these are the numbers of one device, of the 8 of `train.data_parallel`",
            "",
        ),
    ],
)
def test_what_devices_cannot_divide_is_refused(data, train, message, hint):
    with pytest.raises(RlcliError) as error:
        setup_of(data, **train)
    assert message in error.value.message and hint in error.value.hint


def test_an_updater_that_does_not_average_its_updates_is_refused():
    recipe = load_recipe({**PPO, "train": {"steps": 8_000, "data_parallel": 2}})
    updater = Updater(*[lambda: None] * 6)
    with pytest.raises(RlcliError, match="`ppo` does not support `data_parallel`"):
        check_data_parallel(recipe, updater, None)


def test_training_needs_the_devices_but_a_policy_does_not():
    recipe = load_recipe({**PPO, "train": {"steps": 8_000, "data_parallel": 8}})
    setup = build(recipe)  # as an evaluation does
    with pytest.raises(RlcliError, match="`data_parallel: 8`, but JAX finds only 2"):
        check_devices(recipe, setup)


@pytest.mark.parametrize("devices", [1, 2])
def test_processes_need_equally_many_devices(devices, monkeypatch):
    group = processes.ProcessGroup("localhost:9000", 1, 3)
    monkeypatch.setattr(processes, "_group", group)
    train = {"steps": 8_000, "data_parallel": devices}
    recipe = load_recipe({**PPO, "train": train})
    message = f"3 processes cannot share .* `data_parallel: {devices}`"
    with pytest.raises(RlcliError, match=message):
        check_devices(recipe, build(recipe, range(3)))


def test_seeds_are_divided_among_groups_of_devices():
    setup = setup_of(PPO, seeds=2, data_parallel=2)
    assert (setup.devices, setup.all_devices) == (1, 2)
