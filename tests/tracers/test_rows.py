"""The number of consecutive steps that a tracer needs for its λ to matter."""

import jax
import numpy as np
import pytest
from tracing import trace

from rlcli.tracers.multi_step import lambda_return
from rlcli.tracers.off_policy import retrace, v_trace


@pytest.mark.parametrize("make", [lambda_return, retrace, v_trace])
def test_lambda_matters_in_as_many_steps_as_the_tracer_needs_but_not_in_fewer(
    make, random_steps
):
    steps, estimates = random_steps(seed=1, terminate=0.0, truncate=0.0)
    steps = steps._replace(extras={"log_prob": estimates.log_prob})  # on-policy

    def rows(number, lambda_):
        inputs = jax.tree.map(lambda leaf: leaf[:number], (steps, estimates))
        return trace(make(gamma=0.9, lambda_=lambda_), *inputs).reward

    needed = make().sequence_length
    few = [rows(needed - 1, lambda_) for lambda_ in (0.2, 0.9)]
    enough = [rows(needed, lambda_) for lambda_ in (0.2, 0.9)]
    np.testing.assert_allclose(*few, rtol=1e-5, atol=1e-6)
    assert not np.allclose(*enough)
