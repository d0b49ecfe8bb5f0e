"""`rlcli list`, `rlcli show`, `rlcli check`: how they print what the catalog says."""

import json

import gymnasium
import pytest
from folders import write_run

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.spaces import describe

KINDS = {
    "tracer": [
        {"name": "n_step", "summary": "Sums rewards."},
        {"name": "lambda_return", "summary": "Mixes [all] of them."},
    ],
    "replay": [],
}


@pytest.fixture
def put(monkeypatch):
    return lambda name, function: monkeypatch.setitem(vars(rlcli), name, function)


def test_list_prints_names_and_summaries_by_kind(put, capsys):
    put("list", lambda kind: KINDS)
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "tracer",
        "  n_step         Sums rewards.",
        "  lambda_return  Mixes [all] of them.",
        "replay",
    ]


def test_list_of_one_kind_is_a_table_of_all_that_is_said_of_it(put, capsys):
    entries = [
        {
            "name": "Lake",
            "summary": "Walks.",
            "backend": "jax",
            "action": "Discrete(4)",
        },
        {"name": "C", "summary": "Falls.", "backend": "host", "action": "Box(1,)"},
    ]
    put("list", lambda kind: {"environments": entries})
    assert main(["list", "environments"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "  environments  backend  action",
        "  Lake          jax      Discrete(4)",
        "  C             host     Box(1,)",
    ]


def test_every_environment_says_what_it_is():
    """Beside Gymnasium's own spaces, where there are originals."""
    entries = {
        each["name"]: each for each in rlcli.list("environments")["environments"]
    }
    for name in ("CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "Blackjack-v1"):
        theirs, ours = gymnasium.make(name), entries[name]
        assert ours["observation"] == describe(theirs.observation_space)
        assert ours["action"] == describe(theirs.action_space)
        assert (ours["backend"], ours["renders"]) == ("jax", "drawing")
    assert entries["gymnasium/ID"]["backend"] == "host"
    assert entries["gymnax/ID"] | {"summary": ""} == {
        "name": "gymnax/ID",
        "summary": "",
        "backend": "jax",
        "renders": "observation",
        "action": "?",
        "observation": "?",
    }
    unknown = {name for name, each in entries.items() if each["observation"] == "?"}
    libraries = {"envpool", "gymnasium", "gymnax", "pettingzoo", "pgx"}
    libraries |= {
        "brax",
        "playground",
        "craftax",
        "jumanji",
        "navix",
        "xminigrid",
        "jaxmarl",
    }
    wanting = {f"{library}/ID" for library in libraries}
    assert unknown == wanting | {"bsuite/MNISTBandit"}


@pytest.mark.parametrize("name", ["CartPole-v1", "gymnasium/CartPole-v1"])
def test_show_says_the_spaces_of_an_environment(name):
    said = rlcli.show("environment", name).splitlines()
    assert "  observation: Box(4,)" in said
    assert "  action: Discrete(2)" in said


def test_show_leaves_out_what_an_adapter_has_for_the_program_alone():
    """As the function that counts the agents of a game."""
    said = rlcli.show("environment", "pettingzoo/mpe2/simple_spread_v3")
    assert "time_limit" in said and "group" not in said


def test_list_prints_what_it_got_as_json(put, capsys):
    put("list", lambda kind: {kind: KINDS["tracer"]})
    assert main(["list", "tracer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tracer": KINDS["tracer"]}


def test_show_takes_a_recipe_or_a_kind_and_a_name(put, capsys):
    put("show", lambda *words, **options: f"{words} {[*options.values()]}\n")
    assert main(["show", "dqn_cartpole"]) == 0
    assert main(["show", "tracer", "n_step"]) == 0
    assert main(["show", "c51_cartpole", "--diff-from-base", "--set", "a=1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "('dqn_cartpole',) [[], False]",
        "('tracer', 'n_step') [[], False]",
        "('c51_cartpole',) [['a=1'], True]",
    ]


def test_show_takes_settings_for_a_recipe_only():
    shown = rlcli.show("recipe", "dqn_cartpole", set=["tracer.gamma=0.5"])
    assert "\ntracer: {name: n_step, n: 8, gamma: 0.5}\n" in shown
    with pytest.raises(RlcliError, match="takes a recipe"):
        rlcli.show("tracer", "n_step", set=["gamma=0.5"])


def test_show_prints_a_recipe_or_a_run_as_json(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    assert main(["show", str(run), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["run"], shown["status"]) == (str(run), "finished")
    assert shown["resolved"]["optimizer"]["learning_rate"] == 5e-4
    assert main(["show", "dqn_cartpole", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["environment"]["name"] == "CartPole-v1"
    assert main(["show", "updater", "ppo", "--json"]) == 1
    assert "`rlcli list --json`" in capsys.readouterr().err


def test_show_of_several_runs_takes_the_newest_and_says_so(tmp_path, capsys):
    for hour in (10, 11):
        write_run(tmp_path / "dqn" / f"2026-11-20T{hour}-00-00")
    assert main(["show", str(tmp_path / "dqn")]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].endswith("2026-11-20T11-00-00")
    assert err.startswith("using `")


def test_check_goes_on_after_an_unsound_recipe_and_exits_1(put, capsys):
    def check(recipes, *, set):
        assert set == ["a=1"]
        if recipes == ["bad"]:
            raise RlcliError("bad.yaml:1: no updater", "add one")
        sizes = {"memory": 2_097_152, "peak_memory": {"total": 3_145_728}}
        return [{"recipe": recipes[0], "parameters": 17_410, **sizes}]

    put("check", check)
    assert main(["check", "bad", "good", "--set", "a=1"]) == 1
    out, err = capsys.readouterr()
    start = "recipe: good\nparameters: 17410\nmemory: 2.0 MiB\n"
    assert out == f"{start}peak_memory: {{total: 3.0 MiB}}\n"
    assert err == "error: bad.yaml:1: no updater\n\nhint: add one\n"
    assert main(["check", "good", "--set", "a=1"]) == 0
