"""Compile times: every native environment at its largest parameters, in seconds.

Each environment compiles in a separate process with a watchdog, so that a compilation
that hangs in XLA fails the test instead of hanging it. Seconds are of processor time,
which other programs on the machine change little.
"""

import faulthandler
import gzip
import json
import math
import signal
import subprocess
import sys
import time

import pytest

from rlcli import registry

LIMIT = 30  # the maximum seconds to compile one program
BATCHES = (None, 1, 8)  # a single environment, and vectors

# The largest parameters in a factory's docstring or annotation; if there are none,
# values well above those of recipes and papers. Environments without sizes are omitted.
LARGEST = {
    "BitFlip-v0": [{"bits": 100}],
    "BernoulliBandit-v0": [{"arms": 100, "length": 1000}],
    "ConnectFour-v0": [{"rows": 20, "columns": 20}],
    "FourRooms-v0": [{"start": None, "goal": None, "visual": True}],
    "FrozenLake-v1": [{"lake": "8x8"}, {"lake": ["SFFFFFFFFFFFFFFFFFFG"] * 20}],
    "GridWorld-v0": [
        {"layout": ["S..................G"] + ["...#.T.............."] * 19}
    ],
    "KArmedBandit-v0": [{"arms": 1000, "length": 1000}],
    "MetaMaze-v0": [{"size": 31, "view": 9}],
    "MiniGrid-DoorKey-16x16-v0": [{"agent_view_size": 31}],
    "MiniGrid-KeyCorridorS6R3-v0": [{}, {"agent_view_size": 31}],
    "MiniGrid-MemoryS17Random-v0": [{}],
    "PointRobot-v0": [{"starts_anywhere": True, "starts_again": True}],
    "Pong-v0": [{"width": 160, "height": 210}],
    "Reacher-v0": [{"joints": 10}],
    "Swimmer-v0": [{"segments": 5}],
    "Taxi-v3": [{"is_rainy": True, "fickle_passenger": True}],
    # The largest values of bsuite's sweeps.
    "bsuite/Catch": [{"rows": 50, "columns": 50}],
    "bsuite/DeepSea": [{"size": 50}, {"size": 50, "deterministic": False}],
    "bsuite/MNISTBandit": [{"fraction": 1.0}],
    "bsuite/MemoryChain": [
        {"memory_length": 100},
        *({"memory_length": 2, "num_bits": bits} for bits in (17, 20, 25, 30, 40)),
    ],
    "bsuite/SimpleBandit": [{"num_actions": 100}],
    "bsuite/UmbrellaChain": [
        {"chain_length": 100, "n_distractor": 20},
        {"chain_length": 20, "n_distractor": 16},
        {"chain_length": 20, "n_distractor": 100},
    ],
    "probe-needs-memory": [{"delay": 100}],
}
# The size of MNIST's training set: 60,000 images, blank here.
FILES = {
    "train-images-idx3-ubyte.gz": (60_000, 28, 28),
    "train-labels-idx1-ubyte.gz": (60_000,),
}


def native():
    """The native environments, by the first of their names."""
    found = {}
    for name in registry.names("environment"):
        factory = registry.find("environment", name).factory
        if not name.endswith("/") and factory.__module__.startswith("rlcli."):
            found.setdefault(factory, name)
    # Of MiniGrid only the largest levels: the others run the same code.
    return [
        name
        for name in found.values()
        if not name.startswith("MiniGrid-") or name in LARGEST
    ]


def check(*programs):
    """Compiles (name, options) in another process; fails if one takes too long."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(programs)],
        capture_output=True,
        text=True,
        timeout=120 + 4 * len(programs) * len(BATCHES) * 2 * LIMIT,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    assert len(done.stdout.splitlines()) == len(programs) * len(BATCHES) * 2


@pytest.mark.slow
def test_bsuites_umbrella_compiles_in_seconds():
    check(("bsuite/UmbrellaChain", {"n_distractor": 20}))


@pytest.mark.slow
@pytest.mark.parametrize("name", native())
def test_it_compiles_in_seconds_at_its_largest(name, tmp_path):
    options = LARGEST.get(name, [{}])
    if name == "bsuite/MNISTBandit":
        options = [{**each, "path": str(mnist(tmp_path))} for each in options]
    check(*((name, each) for each in options))


def test_all_listed_environments_exist():
    assert set(LARGEST) <= set(native())


def mnist(folder):
    """Writes blank files of the size of MNIST's training set."""
    for name, shape in FILES.items():
        sizes = b"".join(size.to_bytes(4, "big") for size in shape)
        data = bytes([0, 0, 8, len(shape)]) + sizes + bytes(math.prod(shape))
        (folder / name).write_bytes(gzip.compress(data, 1))
    return folder


def main(programs):
    """Compiles reset and step of every program, and prints the seconds."""
    import jax
    import jax.numpy as jnp

    import rlcli
    from rlcli import spaces

    faulthandler.register(signal.SIGPROF, chain=True)  # which ends the process

    def compile_one(label, function, *arguments):
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        start = time.process_time()
        jax.jit(function).lower(*arguments).compile()
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(f"{label}: {time.process_time() - start:.2f} s", flush=True)

    key = jax.random.key(0)
    for name, options in programs:
        for batch in BATCHES:
            env = rlcli.make(name, num_envs=batch, **options)
            shape = (batch,) if batch else ()
            state, _ = jax.eval_shape(env.reset, key)
            action = jax.tree.map(
                lambda leaf, shape=shape: jnp.broadcast_to(leaf, shape + leaf.shape),
                spaces.zeros(env.action),
            )
            label = f"{name} {options}, {batch or 'single'}"
            compile_one(f"{label}, reset", env.reset, key)
            compile_one(f"{label}, step", env.step, state, action, key)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
