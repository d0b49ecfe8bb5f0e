"""The options of tracers: their documented default values."""

import pytest

from rlcli import registry

DEFAULTS = {
    "n_step": {"n": 1, "gamma": 0.99},
    "monte_carlo": {"gamma": 0.99},
    "lambda_return": {"gamma": 0.99, "lambda": 0.95},
    "retrace": {"gamma": 0.99, "lambda": 1.0},
    "v_trace": {"gamma": 0.99, "lambda": 1.0, "clip_rho": 1.0, "clip_c": 1.0},
}
WINDOWS = {name: 1 for name in DEFAULTS} | {"monte_carlo": None}


def test_every_tracer_has_its_default_values_here():
    assert registry.names("tracer") == sorted(DEFAULTS)


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_options_of_a_tracer_have_the_documented_default_values(name):
    factory = registry.find("tracer", name).factory
    options = registry.options(factory)
    assert {key: each.default for key, each in options.items()} == DEFAULTS[name]
    tracer = factory()
    assert (tracer.gamma, tracer.window) == (0.99, WINDOWS[name])
