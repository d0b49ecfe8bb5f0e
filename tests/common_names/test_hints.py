"""Hints for common names: every recipe and command in them works."""

import itertools
import re
import shlex

import pytest

import rlcli
from rlcli import registry
from rlcli.common_names import HINTS, find_hint, normalize_name, suggest_name
from rlcli.errors import RlcliError
from rlcli.recipe import grammar, load_recipe
from rlcli.recipe.documents import load_document

LEAST = {"environment": "CartPole-v1", "updater": "dqn"}
ENTRIES = [
    (kind, names.split(), hint)
    for kind, groups in HINTS.items()
    for names, hint in groups.items()
]
CODES = sorted({code for _, _, hint in ENTRIES for code in re.findall("`(.+?)`", hint)})
ELSEWHERE = {"module:attribute"}  # explained in words


def known_names(kind):
    if kind in registry.KINDS:
        return registry.names(kind)
    return {"kind": registry.KINDS, "option": (), "section": grammar.SECTIONS}[kind]


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
        ("updater", "TD3+BC", "rlcli has no offline"),
        ("updater", "trpo", "TRPO is not supported; PPO is its successor"),
        ("updater", "DreamerV3", "Dreamer is not supported"),
        ("updater", "DQN", "did you mean `dqn`?"),
        ("updater", "double-DQN", "did you mean `double_dqn`?"),
        ("updater", "IMPALA", "did you mean `impala`?"),
        ("updater", "openai_es", "`updater: open_es`"),
        ("updater", "r2d2", "R2D2 is a recipe: `rlcli show r2d2_memory_chain`"),
        ("policy", "eps_greedy", "`policy: epsilon_greedy`"),
        ("optimizer", "Adam", "did you mean `adam`?"),
        ("network", "MLP", "did you mean `mlp`?"),
        ("replay", "PER", "`replay: prioritized`"),
        ("tracer", "GAE", "GAE is the λ-return minus the value"),
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
        ({"optimizer": {"name": "adam", "lr": 1e-3}}, "`optimizer: {name: adam"),
        ({"optimizer": {"name": "adam", "learning_rat": 1}}, "did you mean `learning_"),
        ({"train": {"total_timesteps": 9}}, "`train: {steps: 50_000}`"),
        ({"train": {"step": 9}}, "did you mean `steps`?"),
        ({"env": "CartPole-v1"}, "`environment: CartPole-v1`"),
        ({"learning_rate": 1e-3}, "`optimizer: {name: adam"),
        ({"polcy": "random"}, "did you mean `policy`?"),
        ({"network": {"name": "mlp", "head": "c51"}}, "did you mean `categorical`?"),
        ({"plugins": ["./mine.py"]}, "a part of your own is named where it is used"),
    ],
)
def test_a_common_key_of_a_recipe_says_what_to_write(change, hint):
    with pytest.raises(RlcliError) as caught:
        load_recipe({**LEAST, **change})
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("key", ["plugin", "varry", "wibble"])
def test_a_hint_names_no_section_that_is_refused(key):
    with pytest.raises(RlcliError) as caught:
        load_recipe({**LEAST, key: 1})
    hint = caught.value.hint
    assert hint and "`plugins`" not in hint and "`vary`" not in hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("dqn", "choose from `dqn_acrobot`, `dqn_asterix`"),
        ("qr_dqn", "choose from `qrdqn_cartpole`, `qrdqn_frozenlake`"),
        ("rainbow", "did you mean `rainbow_cartpole`?"),
        ("Munchausen", "did you mean `dqn_munchausen_cartpole`?"),
        ("cartpole", "choose from `a2c_cartpole`"),
        ("impala", "`rlcli show updater impala` shows the updater"),
        ("trpo", "TRPO is not supported"),
        ("updater", "`rlcli list updaters` lists the names"),
        ("wibble", "`rlcli list recipes` lists all recipes"),
    ],
)
def test_an_algorithm_in_place_of_a_recipe_lists_its_recipes(name, hint):
    with pytest.raises(RlcliError, match=f"there is no recipe `{name}`") as caught:
        rlcli.show(name)
    assert caught.value.hint.startswith(hint)


def test_a_common_name_of_a_kind_says_the_kind():
    with pytest.raises(RlcliError, match="no kind of part `algorithms`") as caught:
        rlcli.list("algorithms")
    assert caught.value.hint == "did you mean `updater`?"


def test_a_name_without_a_hint_is_compared_with_the_known_names():
    assert find_hint("updater", "wibble") == find_hint("nothing", "dqn") == ""
    assert suggest_name("updater", "wibble", ["wobble"]) == "did you mean `wobble`?"
