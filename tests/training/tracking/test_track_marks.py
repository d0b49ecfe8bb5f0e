"""Track marks: the file `trackers.json`, and what a damaged one costs."""

import json

import pytest
from folders import snapshot
from wording import mentions

import rlcli
from rlcli.errors import RlcliError
from rlcli.training.tracking.track_records import Marks

DAMAGED = [
    ("[]", "is not a JSON object"),
    ("{", "Expecting property name"),
    ('{"id": 3, "steps": {}}', "`id` is `3`"),
    ('{"steps": {}}', "`id` is `null`"),
    ('{"id": "a", "steps": null}', "`steps` is `null`"),
    ('{"id": "a", "steps": []}', "`steps` is `[]`"),
    ('{"id": "a", "steps": {"wandb": "abc"}}', "abc"),
    ('{"id": "a", "steps": {"wandb": null}}', "null"),
    ('{"id": "a", "steps": {"wandb": true}}', "true"),
    ('{"id": "a", "steps": {"wandb": -1}}', "-1"),
]


def test_marks_are_read_back(tmp_path):
    path = tmp_path / "trackers.json"
    marks = Marks(path)
    assert marks.step("wandb") == 0 and not path.exists()
    marks.set_step("wandb", 30)
    again = Marks(path)
    assert (again.id, again.step("wandb"), again.step("mlflow")) == (marks.id, 30, 0)
    assert json.loads(path.read_text()) == {"id": marks.id, "steps": {"wandb": 30}}


@pytest.mark.parametrize(("text", "message"), DAMAGED)
def test_damaged_marks_are_an_error_that_says_what_their_removal_costs(
    text, message, tmp_path
):
    path = tmp_path / "trackers.json"
    path.write_text(text)
    with pytest.raises(RlcliError) as caught:
        Marks(path)
    assert caught.value.message.startswith(f"`{path}` is damaged: ")
    assert message in caught.value.message
    assert mentions(caught.value.hint, "all rows", "a new run")


@pytest.mark.slow  # trains
def test_a_resume_with_damaged_marks_leaves_the_run_as_it_was(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "silent_t.py").write_text(
        "from rlcli.trackers import Tracker\n"
        "def silent():\n    '''Logs nothing.'''\n"
        "    return Tracker(lambda run: 0, lambda *_: None, lambda *_: None)\n"
    )
    data = {"environment": "FrozenLake-v1", "updater": "q_learning"}
    sets = ["train.steps=64", "train.trackers=[silent_t:silent]"]
    run = rlcli.train(data, set=sets, run=tmp_path / "run", quiet=True)
    (run / "trackers.json").write_text('{"id": "a", "steps": {"silent": "abc"}}')
    before = snapshot(run)
    with pytest.raises(RlcliError, match=r"`.*trackers.json` is damaged"):
        rlcli.resume(run, set=["train.steps=128"], quiet=True, trust=True)
    assert snapshot(run) == before
