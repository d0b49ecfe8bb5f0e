"""Layer names: the layer in which an operation has failed."""

import contextlib
from typing import Any

import haiku as hk

from rlcli.xla.debugging import locate


def name_layers() -> contextlib.AbstractContextManager[Any]:
    """Adds the names of Haiku's modules to a `FloatingPointError` that passes them."""

    def call(next_function: Any, arguments: Any, keywords: Any, context: Any) -> Any:
        if context.method_name != "__call__":
            return next_function(*arguments, **keywords)
        with locate(f"layer `{context.module.module_name}`"):
            return next_function(*arguments, **keywords)

    return hk.intercept_methods(call)
