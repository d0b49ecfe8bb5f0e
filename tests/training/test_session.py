"""The phases of a program: what JAX reports while it traces and compiles."""

import jax
import numpy as np

from rlcli.training.session import report_compilation


def test_tracing_compiling_and_running_follow_each_other():
    phases = []

    @jax.jit
    def program(x):
        return x @ x + jax.jit(lambda y: y * 2.5)(x)

    with report_compilation(phases.append):
        program(np.ones((3, 3), np.float32))
        first = [*phases]
        program(np.ones((3, 3), np.float32))
    assert [*dict.fromkeys(first)] == ["tracing", "compiling", "running"]
    assert first[-1] == "running"
    assert phases == first  # a compiled program reports nothing
    with report_compilation(phases.append):
        pass
    program(np.ones((5, 5), np.float32))
    assert phases == first  # nor does anything after the context
