import jax
import jax.numpy as jnp
import pytest

from rlcli.assembly import build
from rlcli.recipe import load_recipe
from rlcli.xla import backend
from rlcli.xla.fusion_barrier import materialize
from rlcli.xla.random_bits import unroll_key


def test_the_backend_is_that_of_jax_unless_another_is_assumed():
    assert backend.is_cpu()
    with backend.assume_backend("cuda"):
        assert not backend.is_cpu()
        with backend.assume_backend("cpu"):
            assert backend.is_cpu()
        assert not backend.is_cpu()
    assert backend.is_cpu()


def test_choices_for_a_cpu_are_off_elsewhere():
    key, numbers = jax.random.key(0), jnp.arange(3.0)

    def has_barrier():
        return "cond" in str(jax.make_jaxpr(lambda x: materialize(x) + 1)(numbers))

    assert has_barrier()
    assert unroll_key(key) is not key
    with backend.assume_backend("cuda"):
        assert not has_barrier()
        assert unroll_key(key) is key


@pytest.fixture
def own_precision():
    """Restores JAX's precision of products afterwards."""
    before = jax.config.values["jax_default_matmul_precision"]
    yield
    jax.config.update("jax_default_matmul_precision", before)


@pytest.mark.parametrize(
    ("platform", "chosen", "expected"),
    [
        ("cpu", None, "DEFAULT"),
        ("gpu", None, "HIGHEST"),
        ("gpu", "tensorfloat32", "HIGH"),  # the user's choice stays
    ],
)
def test_agents_multiply_in_float32_on_every_device(
    platform, chosen, expected, own_precision, monkeypatch
):
    jax.config.update("jax_default_matmul_precision", chosen)
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    build(load_recipe("qlearning_frozenlake"))
    matrix = jnp.ones((2, 2))
    text = jax.jit(lambda x: x @ x).lower(matrix).as_text()
    assert f"precision = [{expected}, {expected}]" in text
