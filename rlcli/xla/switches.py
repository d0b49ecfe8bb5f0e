"""Switches of JAX: those with which rlcli would compute other numbers, or not at all.

All programs have 32 bits, JAX's usual promotion of dtypes and ranks, and its usual
random bits, so that a run has the same numbers wherever it is trained, resumed and
evaluated. The command line ignores variables that say otherwise; a Python process
belongs to the user, so there `require_defaults` raises.
"""

import os
import sys
from collections.abc import Mapping
from typing import NamedTuple

from rlcli.errors import RlcliError, quote


class Switch(NamedTuple):
    """A setting of `jax.config`, also an environment variable in capitals."""

    allowed: tuple[str, ...]  # the first is JAX's default
    reason: str  # why others are not


_BITS = "rlcli computes in 32 bits"
_PROMOTION = "rlcli's programs rely on the promotion of dtypes and ranks"
_RANDOM = "the random numbers of a run are those of JAX's default"
_KEYS = "the values of `obs` and of `next_obs` are computed with one key"
_TRANSFERS = "rlcli copies between the host and devices"
_FINITE = "rlcli itself reports what is not finite, and checks it between two chunks"
SWITCHES: Mapping[str, Switch] = {
    "jax_enable_x64": Switch(("false",), _BITS),
    "jax_numpy_dtype_promotion": Switch(("standard",), _PROMOTION),
    "jax_numpy_rank_promotion": Switch(("allow",), _PROMOTION),
    "jax_default_prng_impl": Switch(("threefry2x32",), _RANDOM),
    "jax_threefry_partitionable": Switch(("true",), _RANDOM),
    "jax_random_seed_offset": Switch(("0",), _RANDOM),
    "jax_high_dynamic_range_gumbel": Switch(("false",), _RANDOM),
    "jax_accurate_erf_inv": Switch(("false",), _RANDOM),  # since JAX 0.12 at the latest
    "jax_debug_key_reuse": Switch(("false",), _KEYS),
    "jax_debug_nans": Switch(("false",), _FINITE),
    "jax_debug_infs": Switch(("false",), _FINITE),
    **dict.fromkeys(
        (
            "jax_transfer_guard",
            "jax_transfer_guard_host_to_device",
            "jax_transfer_guard_device_to_device",
            "jax_transfer_guard_device_to_host",
        ),
        Switch(("none", "allow", "log", "log_explicit"), _TRANSFERS),
    ),
}
_BOOLS = {
    **dict.fromkeys(("y", "yes", "t", "true", "on", "1"), "true"),
    **dict.fromkeys(("n", "no", "f", "false", "off", "0"), "false"),
}


def ignore_variables() -> list[str]:
    """Removes variables with other settings, before JAX is imported; says which.

    Has no effect if JAX is imported already: then the process is not ours alone. A
    value that is no setting stays: JAX refuses it.
    """
    if "jax" in sys.modules:
        return []
    messages = []
    for name, switch in SWITCHES.items():
        variable = name.upper()
        value = os.environ.get(variable)
        if value is None or _is_allowed(switch, value):
            continue
        if not _is_bool(switch) or value.lower() in _BOOLS:
            del os.environ[variable]
            setting = quote(f"{variable}={value}")
            messages.append(f"{setting} is ignored: {switch.reason}")
    return messages


def require_defaults() -> None:
    """Raises an `RlcliError` if a switch of this thread has another setting."""
    import jax

    for name, switch in SWITCHES.items():
        setting = getattr(jax.config, name, switch.allowed[0])
        value = getattr(setting, "value", setting)
        if _is_allowed(switch, str(value)):
            continue
        needed = switch.allowed[0]
        literal = needed.capitalize() if _is_bool(switch) else repr(needed)
        raise RlcliError(
            f"JAX has `{name}` {quote(str(value))}, but {switch.reason}",
            f"call `jax.config.update({name!r}, {literal})` first, unset "
            f"`{name.upper()}`, or use rlcli in a process of its own",
        )


def _is_bool(switch: Switch) -> bool:
    return switch.allowed[0] in _BOOLS.values()


def _is_allowed(switch: Switch, value: str) -> bool:
    value = value.strip().lower()
    if _is_bool(switch):
        value = _BOOLS.get(value, value)
    return value in switch.allowed
