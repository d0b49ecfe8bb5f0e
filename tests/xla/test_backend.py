import jax
import jax.numpy as jnp

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
