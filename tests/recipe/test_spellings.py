"""Former spellings of options and values: accepted, with a hint."""

import warnings

import pytest

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError, SpellingWarning
from rlcli.recipe import load_recipe, resolve
from rlcli.runs import checkpoint
from rlcli.runs.locate import locate_run
from rlcli.runs.snapshots import read_checkpoint
from rlcli.training import recovery

SAC = {"environment": "Pendulum-v1", "updater": "sac"}
LEARNT = r"^`learnt` is now spelled `learned`$"
CENTRE = r"^`link_centre_1` is now spelled `link_center_1`$"


def acrobot(**options):
    return {"environment": {"name": "Acrobot-v1", **options}, "updater": "dqn"}


@pytest.mark.parametrize("updater", ["sac", "soft_pg"])
def test_a_former_value_is_accepted(updater):
    data = {**SAC, "updater": {"name": updater, "temperature": "learned"}}
    current = load_recipe(data)
    with pytest.warns(SpellingWarning, match=LEARNT):
        former = load_recipe(
            {**SAC, "updater": {"name": updater, "temperature": "learnt"}}
        )
    with pytest.warns(SpellingWarning, match=LEARNT):
        set_former = load_recipe(data, ["updater.temperature=learnt"])
    assert former == set_former == current
    assert resolve(former)["updater"]["temperature"] == "learned"


def test_a_former_name_of_an_option_is_accepted():
    current = load_recipe(acrobot(link_center_1=0.4))
    with pytest.warns(SpellingWarning, match=CENTRE):
        assert load_recipe(acrobot(link_centre_1=0.4)) == current
    varied = load_recipe(acrobot(num_envs=2, each={"link_center_1": [0.4, 0.5]}))
    with pytest.warns(SpellingWarning, match=CENTRE):
        former = load_recipe(acrobot(num_envs=2, each={"link_centre_1": [0.4, 0.5]}))
    assert former == varied
    with pytest.warns(SpellingWarning, match=CENTRE):
        rlcli.make("Acrobot-v1", link_centre_1=0.4)


@pytest.mark.filterwarnings("ignore::rlcli.errors.SpellingWarning")
def test_an_option_under_both_of_its_names_is_refused():
    with pytest.raises(RlcliError, match="has `link_center_1` twice"):
        load_recipe(acrobot(link_center_1=0.4, link_centre_1=0.4))
    with pytest.raises(RlcliError, match="is set twice, directly and in `each`"):
        load_recipe(acrobot(link_centre_1=0.4, each={"link_center_1": [0.4]}))


def test_the_current_spellings_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_recipe({**SAC, "updater": {"name": "sac", "temperature": "learned"}})
        load_recipe({**SAC, "updater": {"name": "sac", "temperature": 0.1}})


def test_the_command_line_prints_one_hint(tmp_path, capsys):
    path = tmp_path / "sac.yaml"
    path.write_text(
        "environment: Pendulum-v1\nupdater: {name: sac, temperature: learnt}\n"
    )
    assert main(["show", str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == "hint: `learnt` is now spelled `learned`\n"
    assert "  temperature: learned\n" in out
    assert main(["show", "sac_pendulum"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_run_with_a_former_spelling_resumes_and_changes_nothing(tmp_path):
    """A run folder as earlier versions have written it."""
    whole = rlcli.train(SAC, smoke=True, quiet=True, run=tmp_path / "whole")
    left = tmp_path / "left"
    chunks = rlcli.chunks(SAC, smoke=True, quiet=True, run=left)
    next(chunks)
    chunks.close()
    run = locate_run(left)
    text = run.resolved_recipe.read_text(encoding="utf-8")
    assert text.count("temperature: learned") == 1
    run.resolved_recipe.write_text(text.replace("learned", "learnt"), encoding="utf-8")
    saved = read_checkpoint(run.latest_checkpoint())
    former = saved._replace(recipe=saved.recipe.replace("learned", "learnt"))
    with pytest.warns(SpellingWarning, match=LEARNT):
        before, after = recovery.recorded_recipe(run, former, [], False)
    assert before == after
    assert resolve(before)["updater"]["temperature"] == "learned"
    with pytest.warns(SpellingWarning, match=LEARNT):
        rlcli.resume(left, quiet=True)
    ends = [locate_run(folder).latest_checkpoint() for folder in (whole, left)]
    first, second = (checkpoint.read(end)["progress"] for end in ends)
    assert {name: leaf.tobytes() for name, leaf in first.items()} == {
        name: leaf.tobytes() for name, leaf in second.items()
    }
