"""What all tests share. Comes before JAX: the layout is settled here."""

import pytest

from rlcli.xla import threads

# One thread: vmapped seeds never wait for each other. Two devices share the seeds.
threads.apply_layout(threads.Layout("one", 2))


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """What one run compiles the next one reads: most of them are the same program."""
    import jax

    options = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("programs")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
