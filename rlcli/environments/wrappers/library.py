"""Wrappers of Gymnasium, and the user's own, around environments on the host."""

import inspect
from collections.abc import Callable

import gymnasium
from gymnasium.envs.registration import WrapperSpec

from rlcli.errors import RlcliError, quote
from rlcli.registry import register_class_adapter
from rlcli.registry.class_options import class_options


@register_class_adapter("wrapper", gymnasium.Env, argument="env", library="gymnasium")
def gymnasium_wrapper(name: str, wrapper: Callable) -> Callable:
    """Returns the factory of a `gymnasium.Wrapper`, or of a function of an environment.

    Its options are the parameters after the first, which is the environment. It returns
    a description, since the adapter of the environment calls the wrapper, for each copy
    and maybe in another process.
    """
    if isinstance(wrapper, type) and not issubclass(wrapper, gymnasium.Wrapper):
        message = f"wrapper {quote(name)} is an environment, not a wrapper"
        raise RlcliError(message, "give its import path as the environment's `name`")
    first = next(iter(inspect.signature(wrapper).parameters), "env")

    def factory(**options: object) -> WrapperSpec:
        return WrapperSpec(name, name, options)

    own = class_options(wrapper, {first}, is_optional=False)
    factory.__signature__ = inspect.Signature([*own.values()])
    factory.__doc__ = wrapper.__doc__
    factory.__module__ = wrapper.__module__
    return factory
