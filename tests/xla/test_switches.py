"""JAX's switches: ignored on the command line, refused in Python, never in numbers."""

import json
import os
import subprocess
import sys

import jax
import pytest

import rlcli
from rlcli.errors import RlcliError
from rlcli.runs import checkpoint
from rlcli.xla import switches

OTHERS = {  # another setting of each switch
    "jax_enable_x64": True,
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_default_prng_impl": "rbg",
    "jax_threefry_partitionable": False,
    "jax_random_seed_offset": 7,
    "jax_high_dynamic_range_gumbel": True,
    "jax_accurate_erf_inv": True,
    "jax_debug_key_reuse": True,
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_transfer_guard": "disallow",
    "jax_transfer_guard_host_to_device": "disallow",
    "jax_transfer_guard_device_to_device": "disallow",
    "jax_transfer_guard_device_to_host": "disallow",
}
OF_THIS_JAX = [name for name in OTHERS if hasattr(jax.config, name)]
VARIABLES = {name.upper(): str(value) for name, value in OTHERS.items()}
FAMILIES = {
    "td": {"updater": "rainbow", "replay": {"batch_size": 4}},
    "policy_gradient": {"updater": "ppo", "normalize": {"reward": True}},
    "off_policy": {"updater": "sac", "replay": {"batch_size": 4}},
    "model_based": {"updater": "model_learning"},
    "intrinsic": {"updater": "a2c", "intrinsic_reward": "rnd"},
}


def test_every_switch_is_one_of_jax_and_has_its_default_here():
    assert set(OTHERS) == set(switches.SWITCHES)
    assert {*OTHERS} - {*OF_THIS_JAX} <= {"jax_accurate_erf_inv"}  # of a newer JAX
    switches.require_defaults()


@pytest.mark.parametrize("name", OF_THIS_JAX)
def test_python_is_told_at_the_start_what_cannot_work(name):
    before = getattr(jax.config, name)
    jax.config.update(name, OTHERS[name])
    try:
        with pytest.raises(RlcliError, match=f"JAX has `{name}`") as caught:
            rlcli.check({"environment": "CartPole-v1", "updater": "a2c"})
        with pytest.raises(RlcliError, match=f"JAX has `{name}`"):
            rlcli.make("CartPole-v1")
    finally:
        jax.config.update(name, before)
    assert f"jax.config.update('{name}'" in str(caught.value.hint)


def test_a_context_of_jax_is_enough():
    with jax.enable_x64(True):
        with pytest.raises(RlcliError, match="64"):
            switches.require_defaults()
        with jax.enable_x64(False):
            switches.require_defaults()


def run_python(code, variables):
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    return result.stdout


def test_variables_are_removed_before_jax_reads_them():
    code = (
        "import os; from rlcli.xla import switches\n"
        "print(*switches.ignore_variables(), sep='\\n')\n"
        "import jax; switches.require_defaults()\n"
        "print([name for name in os.environ if name in "
        f"{sorted(VARIABLES)!r}])\n"
    )
    *messages, left = run_python(code, VARIABLES).splitlines()
    assert [m.split("=")[0].strip("`") for m in messages] == list(VARIABLES)
    assert left == "[]"
    assert "`JAX_ENABLE_X64=True` is ignored: rlcli computes in 32 bits" in messages


@pytest.mark.parametrize(
    ("variable", "value"),
    [("JAX_ENABLE_X64", "0"), ("JAX_DEBUG_NANS", "no"), ("JAX_TRANSFER_GUARD", "log")],
)
def test_a_variable_with_a_setting_that_works_stays(variable, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    monkeypatch.delitem(sys.modules, "jax")
    assert switches.ignore_variables() == []
    assert os.environ[variable] == value


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_has_the_same_bytes_with_all_variables(family, tmp_path):
    recipe = {
        "environment": {"name": "CartPole-v1", "num_envs": 2},
        "network": {"layers": [8]},
        "train": {"steps": 64, "unroll": 4, "evaluate": None},
        **FAMILIES[family],
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    contents = []
    for variables in ({}, VARIABLES):
        run = tmp_path / f"run{len(contents)}"
        command = [sys.executable, "-m", "rlcli", "train", str(path), "--quiet"]
        result = subprocess.run(
            [*command, "--run", str(run)],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        assert ("is ignored" in result.stderr) == bool(variables)
        (last,) = (run / "checkpoints").iterdir()
        progress = checkpoint.read(last)["progress"]
        contents.append({name: leaf.tobytes() for name, leaf in progress.items()})
    assert contents[0] == contents[1]
