"""User code: found beside the recipe, and told apart from installed code."""

import importlib
import json
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np
import pytest
from wording import mentions

import rlcli
from rlcli import recipe, registry
from rlcli.errors import RlcliError
from rlcli.registry import plugins, user_code

ENVIRONMENT = """
import jax.numpy as jnp
from gymnasium.spaces import Discrete
from helper import CELLS
from rlcli.types import Core, TimeStep

def corridor(*, length: int = CELLS):
    def reset(key):
        return jnp.int32(0), jnp.int32(0)

    def step(cell, action, noise):
        cell = jnp.clip(cell + 2 * action - 1, 0, length - 1)
        last = cell == length - 1
        reward = last.astype(jnp.float32)
        return cell, TimeStep(cell, cell, reward, 1 - reward, last, {})

    return Core(reset, step, Discrete(length), Discrete(2))
"""
RECIPE = "environment: mine:corridor\nupdater: q_learning\nnetwork: table\n"


@pytest.fixture(autouse=True)
def _fresh(fresh_imports):
    pass


def lab(folder: Path, cells: int) -> Path:
    """A folder with a recipe and the modules that it needs."""
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(ENVIRONMENT)
    (folder / "helper.py").write_text(f"CELLS = {cells}\n")
    (folder / "mine.yaml").write_text(RECIPE)
    return folder / "mine.yaml"


def test_a_module_beside_a_recipe_is_found_from_any_folder(tmp_path, monkeypatch):
    path = lab(tmp_path / "lab", 5)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in (str(path), "../lab/mine.yaml", path):
        loaded = recipe.load_recipe(name)
        assert loaded.environment.options == {"length": 5}
        assert loaded.import_paths == ["mine:corridor"]


def test_a_module_in_the_current_folder_is_found_for_a_shipped_recipe(
    tmp_path, monkeypatch
):
    lab(tmp_path / "lab", 7)
    monkeypatch.chdir(tmp_path / "lab")
    loaded = recipe.load_recipe("dqn_cartpole", ["environment=mine:corridor"])
    assert loaded.environment.options == {"length": 7}
    assert "length: int = 7" in rlcli.show("environment", "mine:corridor")


def test_two_recipes_with_modules_of_the_same_name_use_their_own(tmp_path):
    paths = [lab(tmp_path / str(cells), cells) for cells in (4, 9)]
    for path, cells in [(paths[0], 4), (paths[1], 9), (paths[0], 4)]:
        assert recipe.load_recipe(path).environment.options == {"length": cells}
        assert sys.modules["mine"].__file__ == str(path.with_suffix(".py"))


def test_a_folder_that_python_searches_already_stays(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", ["/first", *sys.path])
    before = [*sys.path]
    user_code.search_first(tmp_path)
    user_code.extend_path()
    user_code.search_first()
    user_code.extend_path()
    assert sys.path == before


def test_the_folder_of_a_recipe_without_import_paths_is_not_searched(tmp_path):
    (tmp_path / "plain.yaml").write_text("environment: CartPole-v1\nupdater: ppo\n")
    (tmp_path / "optax.py").write_text("raise ValueError('the wrong module')\n")
    recipe.load_recipe(tmp_path / "plain.yaml")
    assert str(tmp_path) not in sys.path


def test_a_recipe_from_a_checkpoint_still_imports_nothing(tmp_path):
    lab(tmp_path / "lab", 5)
    user_code.search_first(tmp_path / "lab")
    data = {"environment": "mine:corridor", "updater": "q_learning"}
    with pytest.raises(RlcliError, match="would import code from outside rlcli"):
        recipe.load_recipe(data, trusted=False)
    assert "mine" not in sys.modules


def test_a_module_that_does_not_exist_is_an_error_that_says_where_to_put_it(tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE.replace("mine:", "my_parts.mine:"))
    with pytest.raises(RlcliError) as error:
        recipe.load_recipe(tmp_path / "r.yaml")
    assert "there is no module `my_parts`" in error.value.message
    assert mentions(error.value.hint, "`my_parts/mine.py`", "beside the recipe")


@pytest.mark.parametrize("name", ["mine.py:corridor", "parts/mine.py:corridor"])
def test_a_file_instead_of_a_module_is_an_error_with_the_import_path(name):
    with pytest.raises(RlcliError, match="names a file instead of a module") as error:
        registry.find("updater", name)
    module = name.removesuffix(".py:corridor").replace("/", ".")
    assert error.value.hint == f"write `{module}:corridor`"


@pytest.mark.parametrize("name", ["/home/me/mine.py:corridor", "../mine.py:corridor"])
def test_a_file_in_another_folder_has_no_import_path(name):
    with pytest.raises(RlcliError, match="names a file instead of a module") as error:
        registry.find("updater", name)
    assert error.value.hint.startswith("put the file beside the recipe")


def test_a_misspelled_adapter_is_not_taken_for_a_file():
    with pytest.raises(RlcliError, match="is not an import path"):
        registry.find("environment", "gymnasim/ale_py:ALE/Pong-v5")


def test_an_error_of_a_decorator_keeps_its_hint_and_gets_its_line(tmp_path):
    (tmp_path / "hurwicz.py").write_text(
        "from rlcli.updaters.td import rule\n\n@rule(targt=None)\ndef hurwicz(c): 0\n"
    )
    user_code.search_first(tmp_path)
    with pytest.raises(RlcliError) as error:
        registry.find("updater", "hurwicz:hurwicz")
    assert mentions(
        error.value.message,
        "`hurwicz:hurwicz`",
        "`@rule`",
        "`targt`",
        f"{tmp_path}/hurwicz.py:3",
    )
    assert error.value.hint == "did you mean `target`?"


def test_a_module_that_lacks_another_one_names_that_one(tmp_path):
    path = lab(tmp_path / "lab", 5)
    (path.parent / "helper.py").unlink()
    with pytest.raises(RlcliError) as error:
        recipe.load_recipe(path)
    assert f"No module named 'helper' ({path.parent}/mine.py:4)" in error.value.message
    assert mentions(error.value.hint, "install", "`helper`")


def test_a_syntax_error_names_its_file_and_line(tmp_path):
    path = lab(tmp_path / "lab", 5)
    (path.parent / "helper.py").write_text("CELLS = 5\nthis is no Python\n")
    with pytest.raises(RlcliError, match=r"SyntaxError: .*helper\.py:2\)"):
        recipe.load_recipe(path)


def test_an_exception_of_a_factory_names_the_line_of_the_user(tmp_path, monkeypatch):
    from rlcli.assembly import build

    path = lab(tmp_path / "lab", 5)
    (path.parent / "mine.py").write_text(
        "import math\n\ndef corridor(*, length: int = 3):\n"
        "    return math.log(length, 'x')\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RlcliError) as error:
        build(recipe.load_recipe(path))
    assert mentions(error.value.message, f"{path}:1: ", "`mine:corridor`")
    assert error.value.message.endswith("(lab/mine.py:4)")
    assert len(error.value.message.splitlines()) == 1


@pytest.mark.parametrize(
    "step", ["    if action > 0: pass", "    return 1 + 'a'", "    return {}['b']"]
)
def test_an_exception_while_tracing_names_the_part_and_the_line(tmp_path, step):
    from rlcli.assembly import build
    from rlcli.training.experiment.program import Program

    path = lab(tmp_path / "lab", 5)
    with (path.parent / "mine.py").open("a") as file:
        file.write("def broken():\n  core = corridor()\n")
        file.write(f"  def step(cell, action, noise):\n{step}\n")
        file.write("  return core._replace(step=step)\n")
    with pytest.raises(RlcliError) as error:
        loaded = recipe.load_recipe(path, ["environment=mine:broken"])
        Program(loaded, build(loaded)).check()
    assert mentions(error.value.message, "`mine:broken`", "raised")
    assert error.value.message.endswith(f"({path.parent}/mine.py:21)")
    assert error.value.hint == plugins.TRACEBACK


@pytest.mark.parametrize(
    ("network", "updater", "given"),
    [
        ("mine:members", "ppo", "it got {obs: float32[2, 4]}"),
        ("mine:members", "sac", "it got {obs: float32[2, 3], action: float32[2, 1]}"),
        ("mine:vector", "sac", "it got float32[2, 4]; a parameter"),
        ("mine:rows", "ppo", "it got {obs: float32[2, 4]}"),
        ("mine:pairs", "ppo", "give `action` the default None"),
        ("mine:forward", "dqn", "it got float32[2, 4]"),
    ],
)
def test_an_error_of_a_network_says_once_where_it_is_and_what_it_got(
    tmp_path, monkeypatch, fresh_imports, network, updater, given
):
    monkeypatch.chdir(tmp_path)
    lines = [
        "import haiku as hk, jax, jax.numpy as jnp",
        "from rlcli.networks.torsos import Torso",
        "def torso(features):",
        "    return Torso(features, lambda size, scale: hk.Linear(size))",
        "def members() -> Torso:",
        "    return torso(lambda obs: obs['position'])",
        "def vector() -> Torso:",
        "    return torso(lambda inputs: inputs['position'])",
        "def rows() -> Torso:",
        "    return torso(lambda obs: obs[:, None])",
        "def pairs() -> Torso:",
        "    return torso(lambda obs, action: jnp.concatenate([obs, action], -1))",
        "def forward(obs):",
        "    return obs['position']",
    ]
    Path("mine.py").write_text("\n".join(lines) + "\n")
    environment, section = "CartPole-v1", network
    if updater == "sac":
        environment, section = "Pendulum-v1", f"{{policy: mlp, critic: {network}}}"
    text = f"environment: {environment}\nupdater: {updater}\nnetwork: {section}\n"
    Path("own.yaml").write_text(text)
    with pytest.raises(RlcliError) as error:
        rlcli.check("own.yaml")
    message = error.value.message
    assert message.startswith("own.yaml:") and message.count("own.yaml:") == 1
    assert given in error.value.hint
    if network == "mine:rows":
        assert "features float32[2, 1, 4], expected one vector" in message


@pytest.mark.slow
def test_a_core_without_render_draws_its_observations(tmp_path):
    from rlcli.assembly import build_environment
    from rlcli.environments.observation_image import observation_image

    loaded = recipe.load_recipe(
        lab(tmp_path / "lab", 5), ["environment.wrappers=[previous]"]
    )
    plain = build_environment(loaded, 1)
    drawn = build_environment(loaded, 1, rendering=True)
    import jax

    key = jax.random.key(0)
    state, obs = drawn.reset(key)
    np.testing.assert_array_equal(obs, plain.reset(key)[1])
    space = registry.find("environment", "mine:corridor").factory().observation
    np.testing.assert_array_equal(drawn.render(state), observation_image(space, 0))
    state, _ = drawn.step(state, np.ones((1,), np.int32), drawn.draw(key))
    np.testing.assert_array_equal(drawn.render(state), observation_image(space, 1))


def test_a_module_found_through_a_link_is_not_imported_again(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "mine.py").write_text("value = []\n")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.syspath_prepend(tmp_path / "link")
    module = importlib.import_module("mine")
    user_code.search_first(tmp_path / "link")
    assert user_code.import_module("mine") is module


def test_imported_files_follow_imports_of_the_user_only(tmp_path):
    files = {
        "first.py": "import json, numpy\nimport pack.one\nfrom rlcli import spaces\n"
        "def later():\n    import lazy, space.deep.part, fast\n",
        "lazy.py": "from pack import two\n",
        "pack/__init__.py": "",
        "pack/one.py": "from . import two\nfrom .deep.three import x\n",
        "pack/two.py": "import importlib\nimportlib.import_module('pack.four')\n",
        "pack/four.py": "",
        "pack/deep/three.py": "x = 1\nfrom ..two import importlib\n",
        "space/deep/part.py": "",
        f"fast{EXTENSION_SUFFIXES[0]}": "compiled",
        "other.py": "",
        "json.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    user_code.search_first(tmp_path)
    assert sys.modules["json"] is json  # imported before, so not replaced
    user_code.import_module("first")
    found = user_code.imported_files(["first"])
    assert [*found] == sorted({*files} - {"other.py", "json.py"})
    assert {path.read_text() for path in found.values()} <= {*files.values()}
    unseen = {"pack/four.py": found["pack/four.py"]}  # imported by its name only
    assert user_code.find_files(["first"], tmp_path) | unseen == found
    assert [*map(user_code.module_name, found)][-3:] == [
        *("pack.one", "pack.two", "space.deep.part")
    ]


def test_installed_files_do_not_belong_to_the_user(tmp_path):
    assert user_code.is_user_file(tmp_path / "mine.py")
    assert user_code.is_user_file(__file__)
    for module in (json, np, pytest, rlcli):
        assert not user_code.is_user_file(str(module.__file__))
    assert not user_code.is_user_file("<string>")
    assert not user_code.is_user_file("/home/a/.venv/lib/site-packages/mine.py")


def test_a_process_searches_the_current_folder_only_if_this_one_does(
    tmp_path, monkeypatch
):
    (tmp_path / "beside.py").write_text("raise SystemExit(77)")
    monkeypatch.chdir(tmp_path)

    def run():
        command = user_code.module_command("beside")
        return subprocess.run(command, check=False, capture_output=True).returncode

    monkeypatch.setattr(sys, "path", ["/elsewhere", *sys.path])
    assert run() == 1  # there is no such module
    for first in ("", str(tmp_path)):  # as `python -c` and `python -m` begin
        monkeypatch.setattr(sys, "path", [first, *sys.path])
        assert run() == 77
