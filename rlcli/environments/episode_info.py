"""Episode info: which numbers of `info` an environment logs, and how.

The loops sum `TimeStep.info` over an episode. `last` leaves only the value of the step
that ends it, so its sum is the last value.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.errors import RlcliError, quote
from rlcli.types import (
    OPTIONAL_FIELDS,
    Array,
    ArrayTree,
    Environment,
    TimeStep,
    wrap,
)

InfoRule = Literal["last", "sum"]
MAX_INFO = 64  # numbers of one environment: each has three fields in rows of metrics


def log_info(env: Environment, rules: Mapping[str, InfoRule], name: str) -> Environment:
    """Logs numbers of `info` by these rules; a compiled environment logs others, too.

    An environment on the host reports those that `rules` name. The default of compiled
    ones is `last` for booleans and for names with `success`, and `sum` for the rest.

    Args:
        rules: what an episode logs of each number: the last one, or the sum.
        name: the environment, for messages.
    """
    if len(rules) > MAX_INFO:
        message = f"{name}: `info` has {len(rules)} names"
        raise RlcliError(message, f"use at most {MAX_INFO}")
    xp: Any = jnp
    if env.host is not None:
        if not rules:
            return env
        if env.host.remake is None:
            message = f"{name} cannot log `info`"
            raise RlcliError(message, "build it with `host_environment`")
        env, xp = env.host.remake(info=tuple(sorted(rules))), np
    step: Callable = env.step

    def log_step(
        state: ArrayTree, action: ArrayTree, noise: ArrayTree = (), cut: Any = False
    ) -> tuple[ArrayTree, TimeStep]:
        state, timestep = step(state, action, noise, cut)
        if unknown := sorted(rules.keys() - timestep.info.keys()):
            known = ", ".join(map(quote, sorted(timestep.info))) or "nothing"
            message = f"{name} has no `info` named {quote(unknown[0])}"
            raise RlcliError(message, f"it reports {known}")
        has_ended = timestep.last | cut

        def log(key: str, value: Array) -> Array:
            is_last = rules.get(key, default_rule(key, value)) == "last"
            return xp.where(has_ended, value, 0) if is_last else value

        info = {key: log(key, value) for key, value in timestep.info.items()}
        return state, timestep._replace(info=info)

    return wrap(env, keeps=OPTIONAL_FIELDS, step=log_step)


def default_rule(name: str, value: Array | jax.ShapeDtypeStruct) -> InfoRule:
    """What an episode logs of a number that a recipe does not name."""
    return "last" if value.dtype == np.bool_ or "success" in name else "sum"
