"""Annotations are checked at run time where `RLCLI_CHECK_TYPES` is set."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
# Checked code must not meet code that other tests imported unchecked: a new process.
PREAMBLE = """
import type_checks
type_checks.install()
import jax, jax.numpy as jnp, numpy as np
from jaxtyping import TypeCheckError
from rlcli.distributions import logits, normal
from rlcli.tracers.multi_step import lambda_return
from rlcli.tracers.off_policy import _accumulate
from rlcli.types import Estimates, Transition

row = jnp.zeros((3, 2))
flag = jnp.zeros((3, 2), bool)
steps = Transition(row, row, row, row, row, flag, flag, {})
estimates = Estimates(row, row, row, row)
"""


def run_checked(program):
    path = os.pathsep.join([str(ROOT / "tests" / "support"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + program],
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )


WRONG = [
    "logits.entropy(jnp.zeros(()))",  # no axis of outcomes
    "logits.kl(jnp.zeros((2, 3)), jnp.zeros((2, 4)))",  # unequal axes
    "logits.entropy(jnp.zeros((2, 3), int))",  # dtype
    "_accumulate(row, row[:2])",  # two lengths of T
    "jax.jit(_accumulate)(row, row[0])",  # within a program
    "lambda_return().trace(steps._replace(reward=row[0]), estimates)",  # a field
    "lambda_return().trace(steps._replace(last=row), estimates)",
    "lambda_return().trace(steps, estimates._replace(v_t=None))",
    "lambda_return(gamma='0.9')",
]


@pytest.fixture(scope="module")
def refused_calls():
    """Those of `WRONG` that raise `TypeCheckError`, from one process."""
    program = "".join(
        f"try:\n    {call}\nexcept TypeCheckError:\n    print({call!r})\n"
        for call in WRONG
    )
    result = run_checked(program)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_argument_is_an_error(call, refused_calls):
    assert call in refused_calls


def test_right_arguments_pass_and_a_number_may_be_a_traced_array():
    result = run_checked(
        """
lambda_return().trace(steps, estimates)
jax.jit(lambda gamma: lambda_return(gamma=gamma).trace(steps, estimates))(0.9)
steps = jax.tree.map(np.asarray, steps)  # NumPy arrays are arrays too
lambda_return(gamma=1).trace(steps, estimates)
normal((2,)).entropy(jnp.zeros((5, 3, 4)))
print('passed')
"""
    )
    assert result.stdout == "passed\n", result.stderr


def test_a_record_may_hold_anything_where_no_function_receives_it():
    result = run_checked(
        "print(jax.tree.map(lambda leaf: leaf.ndim, estimates).v_t)\n"
        "print(jax.eval_shape(lambda: estimates).v_t.shape)"
    )
    assert result.stdout == "2\n(3, 2)\n", result.stderr
