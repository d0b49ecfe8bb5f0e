"""Hints for common names: every recipe and command in them works."""

import itertools
import re
import shlex

import pytest
from wording import mentions

import rlcli
from rlcli import COMMANDS, registry
from rlcli.cli import main
from rlcli.errors import USAGE, RlcliError
from rlcli.recipe import find_recipe, grammar, load_recipe, shipped_recipes
from rlcli.recipe.documents import load_document
from rlcli.registry.common_names import HINTS, find_hint, normalize_name, suggest_name
from rlcli.training.experiment.together import read_initial

LEAST = {"environment": "CartPole-v1", "updater": "dqn"}
ENTRIES = [
    (kind, names.split(), hint)
    for kind, groups in HINTS.items()
    for names, hint in groups.items()
]
CODES = sorted({code for _, _, hint in ENTRIES for code in re.findall("`(.+?)`", hint)})
ELSEWHERE = {"module:attribute", "--set"}  # explained in words
ELSEWHERE |= {"=", "!=", "<", ">="}  # in conditions


def known_names(kind):
    if kind in registry.KINDS:
        return registry.names(kind)
    keys = {"key": grammar.SECTIONS, "init": ()}
    keys["option"] = ("--filter", "--y", "--output")  # of the commands on results
    return {**keys, "kind": registry.KINDS, "command": COMMANDS}[kind]


@pytest.mark.parametrize("code", CODES)
def test_what_a_hint_tells_to_write_is_valid(code):
    if code.startswith("rlcli "):
        command, *words = shlex.split(code)[1:]
        if words:
            getattr(rlcli, command)(*words)
        else:
            assert command in rlcli.__all__
    elif ": " in code:
        data = load_document(code).data
        assert set(data) <= set(grammar.SECTIONS)
        load_recipe({**LEAST, **data})
    else:
        kinds = map(known_names, HINTS)
        assert code in {*itertools.chain(*kinds)} | ELSEWHERE


@pytest.mark.parametrize("kind", HINTS)
def test_a_name_has_one_hint_and_is_no_name_of_rlcli(kind):
    names = [
        normalize_name(name)
        for entry_kind, group, _ in ENTRIES
        for name in group
        if entry_kind == kind
    ]
    assert len(names) == len(set(names))
    assert not {*names} & {normalize_name(name) for name in known_names(kind)}


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("updater", "DDQN", "`updater: double_dqn`"),
        ("updater", "TD3+BC", "did you mean `td3_bc`?"),
        ("updater", "GAIL", "rlcli's offline algorithms are"),
        ("updater", "trpo", "it is not supported; closest is `updater: ppo`"),
        ("updater", "DreamerV3", "it is not supported; closest is"),
        ("updater", "DQN", "did you mean `dqn`?"),
        ("updater", "double-DQN", "did you mean `double_dqn`?"),
        ("updater", "IMPALA", "did you mean `impala`?"),
        ("updater", "openai_es", "`updater: open_es`"),
        ("updater", "r2d2", "R2D2 is a recipe: `rlcli show r2d2_memory_chain`"),
        ("policy", "eps_greedy", "`policy: epsilon_greedy`"),
        ("optimizer", "Adam", "did you mean `adam`?"),
        ("network", "MLP", "did you mean `mlp`?"),
        ("replay", "PER", "`replay: prioritized`"),
        ("tracer", "GAE", "`tracer: {name: lambda_return, lambda: 0.95}`"),
        ("tracer", "n-step", "did you mean `n_step`?"),
    ],
)
def test_a_common_name_of_a_part_says_what_to_write(kind, name, hint):
    with pytest.raises(RlcliError) as caught:
        registry.find(kind, name)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"updater": {"name": "dqn", "gamma": 0.9}}, "γ belongs to the tracer"),
        ({"optimizer": {"name": "adam", "lr": 1e-3}}, "`optimizer: {learning_rate"),
        ({"optimizer": {"name": "adam", "learning_rat": 1}}, "did you mean `learning_"),
        ({"train": {"total_timesteps": 9}}, "`train: {steps: 50_000}`"),
        ({"train": {"step": 9}}, "did you mean `steps`?"),
        ({"env": "CartPole-v1"}, "`environment: CartPole-v1`"),
        ({"learning_rate": 1e-3}, "`optimizer: {learning_rate: 1e-3}`"),
        ({"gamma": 0.9}, "γ belongs to the tracer: `tracer: {gamma: 0.99}`"),
        ({"total_timesteps": 1e5}, "`train: {steps: 50_000}`"),
        ({"n_envs": 8}, "`environment: {name: CartPole-v1, num_envs: 8}`"),
        ({"num_envs": 8}, "`num_envs` is an option of `environment`"),
        ({"steps": 8}, "`steps` is an option of `train`"),
        ({"net_arch": [8]}, "`network: {layers: [64, 64]}`"),
        ({"layer_norm": True}, "`layer_norm` is an option of `network`"),
        ({"polcy": "random"}, "did you mean `policy`?"),
        ({"network": {"name": "mlp", "head": "c51"}}, "did you mean `categorical`?"),
        ({"plugins": ["./mine.py"]}, "a part of your own is named where it is used"),
        ({"callback": "mine:Stop"}, "`train: {hooks: []}` lists hooks of your own"),
        ({"train": {"callbacks": []}}, "`train: {hooks: []}` lists hooks of your own"),
        ({"environment": {"name": "CartPole-v1", "wrapper": "x"}}, "`environment: {na"),
        ({"network": {"name": "mlp", "pretrained": True}}, "`init: runs/base` starts"),
        ({"init": "orthogonal"}, "initial weights are an option of the network: `net"),
    ],
)
def test_a_common_key_of_a_recipe_says_what_to_write(change, hint):
    with pytest.raises(RlcliError) as caught:
        read_initial(load_recipe({**LEAST, **change}))
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("key", ["plugin", "varry", "wibble"])
def test_a_hint_names_no_section_that_is_refused(key):
    with pytest.raises(RlcliError) as caught:
        load_recipe({**LEAST, key: 1})
    hint = caught.value.hint
    assert hint and "`plugins`" not in hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("dqn", "choose from `dqn_cartpole`, `dqn_catch`, "),
        ("ppo", "choose from `ppo_cartpole`, "),
        ("qr_dqn", "choose from `qrdqn_cartpole`, `qrdqn_frozenlake`; `rlcli show upd"),
        ("rainbow", "did you mean `rainbow_cartpole`? `rlcli show updater rainbow` "),
        ("Munchausen", "did you mean `dqn_munchausen_cartpole`?"),
        ("cartpole", "choose from `dqn_cartpole`, `ppo_cartpole`"),
        ("impala", "`rlcli show updater impala` shows the updater; your own recipe"),
        ("CartPole-v1", "`CartPole-v1` is an environment; choose from `dqn_cartpole`"),
        ("CartPole-v0", "`CartPole-v1` is an environment; choose from `dqn_cartpole`"),
        ("bsuite/Catch", "`bsuite/Catch` is an environment; did you mean `dqn_catch`?"),
        (
            "LunarLander-v3",
            "`gymnasium/LunarLander-v3` is an environment; did you mean `ppo_gymnasiu",
        ),
        ("Taxi-v3", "`Taxi-v3` is an environment; write a recipe with `environment: T"),
        ("Wibble-v3", "`rlcli list environments` lists the environments"),
        ("trpo", "it is not supported; closest is `updater: ppo`"),
        ("updater", "`rlcli list updaters` lists the names"),
        ("callback", "`train: {hooks: []}` lists hooks of your own"),
        ("wibble", "`rlcli list recipes` lists all recipes"),
    ],
)
def test_an_algorithm_in_place_of_a_recipe_lists_its_recipes(name, hint):
    with pytest.raises(RlcliError, match=f"there is no recipe `{name}`") as caught:
        rlcli.show(name)
    assert caught.value.hint.startswith(hint)


def suggested_recipes(name):
    with pytest.raises(RlcliError, match=f"there is no recipe `{name}`") as caught:
        find_recipe(name)
    assert len(caught.value.hint) < 200
    return [
        code
        for code in re.findall("`(.+?)`", caught.value.hint)
        if code in shipped_recipes()
    ]


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "CartPole-v0", "FrozenLakeNonSlippery-v0", "Acrobot-v1"]
)
def test_every_recipe_for_an_environment_trains_on_it(name):
    recipes = suggested_recipes(name)
    assert 1 <= len(recipes) <= 5
    for recipe in recipes:
        environment = load_recipe(recipe).environment.name
        assert environment == name.replace("CartPole-v0", "CartPole-v1")


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "cartpole", "dqn", "ppo", "frozenlake"]
)
def test_no_recipe_is_suggested_that_does_not_solve_its_environment(name):
    for recipe in suggested_recipes(name):
        text = shipped_recipes()[recipe].read_text(encoding="utf-8")
        assert "not solved" not in text.lower()


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("lr=1e-3", "`--set optimizer.learning_rate=0.001`"),
        ("gamma=0.9", "γ belongs to the tracer: `--set tracer.gamma=0.99`"),
        ("steps=9", "`--set train.steps=9`"),
        ("num_envs=9", "`--set environment.num_envs=9`"),
        ("n_envs=9", "`--set environment.num_envs=8`"),
        ("net_arch=[9]", "`--set 'network.layers=[64, 64]'`"),
        ("env=Pong-v0", "`--set environment=CartPole-v1`"),
        ("tau=0.1", "`--set updater.target.polyak=0.005`"),
        ("render_mode=human", "`rlcli render` renders any"),
        ("success=last", "`--set environment.info.success=last`"),
        ("wrapper=previous", "`--set 'environment.wrappers=[previous]'`; `rlcli list"),
        ("pretrained=runs/base", "`--set init=runs/base` starts from"),
        ("wibble=1", "choose from `environment`"),
    ],
)
def test_a_common_key_of_a_setting_says_what_to_set(setting, hint):
    with pytest.raises(RlcliError) as caught:
        load_recipe(LEAST, [setting])
    assert caught.value.message.startswith(f"--set {setting}: a recipe has no section")
    assert caught.value.hint.startswith(hint)
    for option in re.findall("`--set (.+?)`", hint):
        load_recipe({**LEAST, "train": {"steps": 5_000}}, [shlex.split(option)[0]])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("algorithms", "did you mean `updater`?"),
        ("envs", "did you mean `environment`?"),
        ("recpes", "did you mean `recipe`?"),
        ("foo", "choose from `environment`, "),
    ],
)
def test_a_common_name_of_a_kind_says_the_kind(name, hint):
    with pytest.raises(RlcliError, match=f"no kind of part `{name}`") as caught:
        rlcli.list(name)
    assert caught.value.hint.startswith(hint)
    assert hint.startswith("did") or "`recipe`" in caught.value.hint


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("enjoy", "`rlcli render` renders a trained policy"),
        ("evaluate", "`rlcli eval` evaluates a trained policy"),
        ("wibble", "see `rlcli --help`"),
    ],
)
def test_a_common_name_of_a_command_says_the_command(command, hint, capsys):
    assert main([command]) == USAGE
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"error: no such command '{command}'")
    assert err.endswith(f"\n\nhint: {hint}\n")


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--query", "did you mean `--filter`?"),
        ("--tex", "`--output` takes the name of a file"),
        ("--wibble", "see `rlcli compare --help`"),
    ],
)
def test_a_common_name_of_an_option_says_the_option(option, hint, capsys):
    assert main(["compare", "runs", option, "x"]) == USAGE
    message, _, shown = capsys.readouterr().err.partition("\n\nhint: ")
    assert message.startswith(f"error: no such option: {option}")
    assert shown.startswith(hint)
    assert "Possible" not in message or hint.startswith("see")


def test_an_updater_may_be_named_like_its_algorithm():
    assert load_recipe(LEAST).updater.name == "dqn"
    with pytest.raises(RlcliError) as caught:
        load_recipe({**LEAST, "environment": "LunarLander-v3"})
    assert mentions(caught.value.hint, "did you mean", "`gymnasium/LunarLander-v3`")


def test_a_name_without_a_hint_is_compared_with_the_known_names():
    assert find_hint("updater", "wibble") == find_hint("nothing", "dqn") == ""
    assert suggest_name("updater", "wibble", ["wobble"]) == "did you mean `wobble`?"
