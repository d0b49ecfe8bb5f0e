"""Layout: the threads of a command, settled before it imports JAX."""

import json

import pytest

from rlcli.runs import checkpoint, thread_layout
from rlcli.xla import threads
from rlcli.xla.threads import Layout

RECIPE = """
environment: CartPole-v1
network: {name: mlp, layers: [256, 256]}
replay: {name: uniform, batch_size: 256}
updater: q_learning
"""


@pytest.fixture
def applied_layouts(monkeypatch):
    """The layouts that were applied."""
    layouts = []
    monkeypatch.setattr(
        threads, "apply_layout", lambda layout: layouts.append(layout) is None
    )
    monkeypatch.setattr(threads, "usable_cores", lambda: 2)
    return layouts


def test_training_takes_the_recipe_with_its_overrides(applied_layouts, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    thread_layout.apply_for_recipe(str(path), set=[])
    thread_layout.apply_for_recipe(str(path), set=["network.layers=[8, 8]"])
    thread_layout.apply_for_recipe(str(path), set=["train.seeds=4"])
    thread_layout.apply_for_recipe(str(path), set=["train.seeds=4"], runs=3)
    assert applied_layouts == [
        Layout("pool", 1),
        Layout("one", 1),
        Layout("one", 2),
        Layout("one", 2),
    ]


@pytest.mark.parametrize(
    ("data_parallel", "seeds", "processes", "devices"),
    [(8, 1, 1, 8), (8, 4, 1, 8), (1, 4, 1, 2), (8, 1, 2, 4)],
)
def test_devices_that_share_an_agent_have_one_thread_each(
    applied_layouts, tmp_path, data_parallel, seeds, processes, devices
):
    """As many as the recipe asks for, also if there are fewer cores."""
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    thread_layout.apply_for_recipe(
        str(path),
        set=[f"train.data_parallel={data_parallel}"],
        runs=seeds,
        processes=processes,
    )
    assert applied_layouts == [Layout("one", devices)]


def test_a_run_goes_on_with_other_devices_if_they_are_set(applied_layouts, tmp_path):
    recorded = {"layout": {"threads": "one", "devices": 3, "size": 0}}
    (tmp_path / "run.json").write_text(json.dumps(recorded))
    (tmp_path / "resolved.yaml").write_text(RECIPE)
    thread_layout.apply_for_run(tmp_path, ["train.data_parallel=4"])
    assert applied_layouts == [Layout("one", 4)]


def test_a_recipe_that_is_not_there_is_not_the_layouts_business(
    applied_layouts, tmp_path
):
    thread_layout.apply_for_recipe(str(tmp_path / "none.yaml"), set=["="], runs=2)
    assert applied_layouts == [Layout("one", 2)]


def test_a_run_goes_on_with_the_layout_that_it_began_with(applied_layouts, tmp_path):
    recorded = {"layout": {"threads": "pool", "devices": 3, "size": 2}}
    (tmp_path / "run.json").write_text(json.dumps(recorded))
    thread_layout.apply_for_run(tmp_path)
    thread_layout.apply_for_policy(tmp_path)
    assert applied_layouts == [Layout("pool", 3, 2), Layout("pool", 1, 2)]


def test_what_is_no_run_gets_one_thread(applied_layouts, tmp_path):
    thread_layout.apply_for_run(tmp_path)
    thread_layout.apply_for_policy("CartPole-v1")
    assert applied_layouts == [Layout("one", 1), Layout("one", 1)]


@pytest.mark.parametrize(
    ("recorded", "applied"),
    [
        ({"threads": "one", "devices": 3_000}, Layout("one", 16)),
        ({"threads": "pool", "devices": 1, "size": 30_000}, Layout("pool", 1, 16)),
        ({"threads": "one", "devices": 16}, Layout("one", 16)),
    ],
)
def test_a_file_cannot_ask_for_more_than_eight_per_core(
    applied_layouts, tmp_path, recorded, applied
):
    """Neither `run.json` nor a recipe decides the resources of this machine."""
    (tmp_path / "run.json").write_text(json.dumps({"layout": recorded}))
    message = thread_layout.apply_for_run(tmp_path)
    assert applied_layouts == [applied]
    asked = max(recorded["devices"], recorded.get("size", 0))
    assert (f"{asked:,} " in message) == (asked > 16)


def test_a_checkpoint_and_a_stored_recipe_are_bounded_likewise(
    applied_layouts, tmp_path
):
    layout = {"threads": "pool", "devices": 9_000, "size": 9_000}
    content = {
        **{"kind": "checkpoint", "recipe": RECIPE, "seeds": [0]},
        "circumstances": {"layout": layout, "versions": {}},
        **{"progress": {}, "metrics": {}},
    }
    (tmp_path / "checkpoints").mkdir()
    checkpoint.write(tmp_path / "checkpoints" / "000000010.pkl.lz4", content)
    (tmp_path / "resolved.yaml").write_text(RECIPE)
    thread_layout.apply_for_run(tmp_path)
    thread_layout.apply_for_policy(tmp_path)
    thread_layout.apply_for_run(tmp_path, ["train.data_parallel=9_000"])
    thread_layout.apply_for_run(tmp_path, ["train.devices=9_000"])
    assert [*map(tuple, applied_layouts)] == [
        *(("pool", 16, 16), ("pool", 1, 16), ("one", 16, 0), ("pool", 16, 0)),
    ]
