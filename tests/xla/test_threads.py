"""Threads: the layout of a run, chosen before JAX is imported."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rlcli import registry
from rlcli.runs import thread_layout
from rlcli.runs.thread_layout import choose_layout
from rlcli.xla import threads
from rlcli.xla.threads import Layout

DQN = """
environment: CartPole-v1
network: {name: mlp, layers: [64, 64]}
replay: {name: uniform, capacity: 10_000, batch_size: 32}
updater: q_learning
"""
SAC = """
environment: Pendulum-v1
network:
  policy: {name: mlp, layers: [256, 256]}
  critic: {name: mlp, layers: [256, 256]}
replay: {name: uniform, batch_size: 256}
updater: sac
"""
PPO = """
environment: {name: CartPole-v1, num_envs: 64}
network: {shared: {name: mlp, layers: [64, 64]}, policy: {}, value: {}}
updater: {name: ppo, minibatches: 4}
train: {unroll: 128}
"""


def test_seeds_need_the_fewest_devices_that_keep_the_largest_share_small():
    for seeds in range(1, 20):
        for devices in range(1, 9):
            share = -(-seeds // min(seeds, devices))
            expected = min(n for n in range(1, 9) if -(-seeds // n) == share)
            assert threads.fewest_devices(seeds, devices) == expected


@pytest.fixture
def bare(monkeypatch):
    """A CPU without AVX-512, and no environment variables."""
    for name in ("NPROC", "XLA_FLAGS", "JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_has_wide_vectors", lambda: False)
    monkeypatch.setattr(threads, "has_accelerator", lambda: False)
    return monkeypatch


def test_a_small_network_gets_one_thread():
    assert choose_layout(DQN) == Layout("one", 1)


def test_a_wide_network_with_one_seed_gets_the_pool():
    assert choose_layout(SAC) == Layout("pool", 1)


def test_an_online_agents_rows_are_those_of_a_minibatch():
    # 64 environments of 128 steps in 4 minibatches: 2 048 rows of 64 × 64.
    assert (
        thread_layout.estimate_work({"network": {"layers": [64, 64]}}) == 32 * 64 * 64
    )
    assert choose_layout(PPO) == Layout("pool", 1)
    assert choose_layout(PPO.replace("64}", "4}")) == Layout("one", 1)


@pytest.mark.parametrize(
    ("cores", "seeds", "devices"),
    [(1, 8, 1), (2, 8, 2), (4, 6, 3), (16, 5, 5), (2, 7, 2), (4, 5, 3)],
)
def test_several_seeds_are_divided_among_the_cores_and_never_share_a_pool(
    cores, seeds, devices, monkeypatch
):
    monkeypatch.setattr(threads, "usable_cores", lambda: cores)
    assert choose_layout(SAC, seeds) == Layout("one", devices)
    assert choose_layout(SAC + "train: {devices: auto}", seeds).devices == devices


def test_seeds_of_an_environment_on_the_host_use_one_device(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 2)
    for environment in ("gymnasium/CartPole-v1", {"name": "envpool/Pong-v5"}):
        assert choose_layout({"environment": environment}, 4) == Layout("one", 1)
    assert choose_layout({"environment": "bsuite/Catch"}, 4) == Layout("one", 2)
    adapters = {
        name
        for name in registry.names("environment")
        if name.endswith("/")
        and registry.find("environment", name).facts.get("adapter")
    }
    assert adapters == set(thread_layout.HOST_ADAPTERS)


def test_the_number_of_seeds_is_that_of_the_caller_or_the_recipe():
    recipe = SAC + "train: {seeds: 4}"
    assert choose_layout(recipe).threads == "one"
    assert choose_layout(recipe, 1).threads == "pool"


def test_train_threads_and_train_devices_override_the_choice():
    assert choose_layout(SAC + "train: {threads: 1}") == Layout("one", 1)
    assert choose_layout(DQN + "train: {threads: 3}") == Layout("pool", 1, 3)
    assert choose_layout(DQN + "train: {devices: 4}", 8) == Layout("one", 4)
    assert choose_layout(DQN + "train: {threads: auto, devices: auto}") == Layout(
        "one", 1
    )


@pytest.mark.parametrize(
    "recipe",
    [
        *("", "[]", "{", "\t", "*a", "[" * 5_000, "a: &a [*a]", "x: 2026-99-99"),
        *("network: 1", "network: {layers: x}", "network: {layers: [x, null]}"),
        *("train: [1]", "train: {seeds: many, threads: 1.5, devices: -1}"),
        "updater: {minibatches: 0}",
    ],
)
def test_an_invalid_recipe_has_a_layout(recipe):
    assert choose_layout(recipe) == Layout("one", 1)


def test_one_thread_and_many_devices_become_variables(bare):
    assert threads.environment_variables(Layout("one", 1)) == {"NPROC": "1"}
    assert threads.environment_variables(Layout("pool", 1)) == {}
    assert threads.environment_variables(Layout("pool", 1, 3)) == {"NPROC": "3"}
    assert threads.environment_variables(Layout("one", 2)) == {
        "NPROC": "1",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }


def test_wide_vectors_are_enabled_if_the_cpu_has_them(bare):
    bare.setattr(threads, "_has_wide_vectors", lambda: True)
    flags = threads.environment_variables(Layout("one", 1))["XLA_FLAGS"]
    assert flags == "--xla_cpu_prefer_vector_width=512"


def test_variables_of_the_user_are_not_overridden(bare):
    bare.setenv("NPROC", "7")
    bare.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=5 --other=1")
    assert threads.environment_variables(Layout("one", 2)) == {}
    bare.setenv("XLA_FLAGS", "--other=1")
    assert threads.environment_variables(Layout("one", 2)) == {
        "XLA_FLAGS": "--other=1 --xla_force_host_platform_device_count=2"
    }


def test_variables_are_unchanged_with_an_accelerator(bare):
    bare.setattr(threads, "has_accelerator", lambda: True)
    assert threads.environment_variables(Layout("one", 2)) == {}


@pytest.mark.parametrize(
    ("platforms", "expected"),
    [("cpu", False), ("CPU,cuda", False), ("cuda", True), ("tpu,cpu", True)],
)
def test_the_platform_of_the_user_takes_precedence(monkeypatch, platforms, expected):
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    assert threads.has_accelerator() is expected


@pytest.mark.parametrize(
    "layout",
    [Layout("one", 1), Layout("one", 4), Layout("pool", 1), Layout("pool", 1, 3)],
)
def test_a_recorded_layout_can_be_restored(bare, layout):
    for name, value in threads.environment_variables(layout).items():
        bare.setenv(name, value)
    noted = threads.current_layout(layout.devices)
    assert thread_layout.parse_layout(noted) == layout
    assert noted["xla_flags"] == os.environ.get("XLA_FLAGS", "")


def test_an_invalid_recorded_layout_is_ignored():
    assert thread_layout.parse_layout({}) is None
    assert thread_layout.parse_layout({"threads": "many", "devices": 2}) is None


def test_a_layout_has_no_effect_once_jax_has_used_a_device(bare):
    import jax

    jax.devices()
    assert threads.apply_layout(Layout("one", 2)) is False
    assert "NPROC" not in os.environ


def fresh(program: str, folder: Path | None = None) -> list[str]:
    """The words that a program prints in a new Python process, without a layout."""
    settled = ("NPROC", "XLA_FLAGS")
    environment = {k: v for k, v in os.environ.items() if k not in settled}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment | {"JAX_PLATFORMS": "cpu"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.split()


@pytest.mark.slow
def test_a_layout_applies_after_the_import_of_jax():
    program = """
        import jax
        from rlcli.xla import threads
        print(threads.apply_layout(threads.Layout("one", 3)), jax.device_count())
    """
    assert fresh(program) == ["True", "3"]


@pytest.mark.skipif(
    sys.platform != "linux" or threads.usable_cores() < 2, reason="counts threads"
)
@pytest.mark.slow
def test_one_thread_after_the_import_of_jax_is_one_thread():
    program = """
        import jax, pathlib
        from rlcli.xla import threads
        {apply}
        jax.block_until_ready(jax.numpy.ones((500, 500)) @ jax.numpy.ones((500, 500)))
        tasks = pathlib.Path("/proc/self/task").glob("*/comm")
        print(sum("XLAEigen" in path.read_text() for path in tasks))
    """
    apply = 'threads.apply_layout(threads.Layout("one", 1))'
    assert fresh(program.replace("{apply}", apply)) == ["1"]
    assert int(fresh(program.replace("{apply}", ""))[0]) > 1


@pytest.mark.slow
def test_jax_sees_the_devices_of_the_layout():
    program = """
        from rlcli.xla import threads
        applied = threads.apply_layout(threads.Layout("one", 3))
        import jax
        count = jax.device_count()
        late = threads.apply_layout(threads.Layout("one", 2))
        print(applied, count, late)
    """
    assert fresh(program) == ["True", "3", "False"]


@pytest.mark.slow
def test_a_command_dispatches_synchronously(tmp_path):
    """What runs before training must not use a device: JAX would ignore the setting."""
    program = """
        from rlcli.cli import main
        main(["train", "qlearning_frozenlake", "--quiet", "--smoke", "--run", "run"])
        import jax, jax.numpy as jnp
        turn = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda i, x: x @ x, x))
        x = jnp.eye(200)
        turn(x).block_until_ready()
        print(turn(x).is_ready())
    """
    assert fresh(program, tmp_path)[-1] == "True"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "there"),
    [
        ('threads.Layout("one", 1)', "True"),
        ('threads.Layout("one", 2)', "False"),
        ('threads.Layout("pool", 1)', "False"),
    ],
)
def test_dispatch_is_synchronous_with_a_single_thread_only(layout, there):
    program = f"""
        from rlcli.xla import threads
        threads.apply_layout({layout})
        threads.disable_async_dispatch()
        import jax, jax.numpy as jnp
        turn = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda i, x: x @ x, x))
        x = jnp.eye(200)
        turn(x).block_until_ready()
        print(turn(x).is_ready())
    """
    assert fresh(program) == [there]
