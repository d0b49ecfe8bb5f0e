"""Out of memory: refuses recipes that need too much, and explains failed allocations.

Both raise one error, which names what needs the memory and which options change it.
"""

import contextlib
from collections.abc import Iterator, Sequence

import jax

from rlcli.assembly import memory_usage
from rlcli.assembly.build_part import explain_user_errors
from rlcli.assembly.memory_usage import Item, is_accelerated
from rlcli.errors import RlcliError
from rlcli.loop.evaluator import Evaluator
from rlcli.recipe import Recipe
from rlcli.types import ArrayTree
from rlcli.xla import machine
from rlcli.xla.machine import format_size

_ALLOCATION = "Out of memory allocating"  # as XLA says it
_MAX_LISTED = 4  # items in an error


class OutOfMemoryError(RlcliError):
    """An allocation failed, or would fail."""


@contextlib.contextmanager
def limit_evaluation_memory(
    recipe: Recipe,
    evaluator: Evaluator,
    acting: ArrayTree,
    records: Sequence[Item] = (),
) -> Iterator[None]:
    """Context for an evaluation: refuses it first if it needs too much memory.

    `records` is the memory of its recorded steps.
    """
    with limit_building(recipe):
        items = [*records, *memory_usage.evaluator_memory(recipe, evaluator, acting)]
    check_available_memory("this policy", items)
    with explain_out_of_memory("this policy", items), explain_user_errors(recipe):
        yield


def check_available_memory(
    subject: str, items: Sequence[Item], devices: int = 1
) -> None:
    """Refuses items that need more memory than available.

    The error names the largest items, and the options that change them. Items that are
    not on the host are shared evenly by the accelerators, `devices` in number.
    """
    on_host = items
    if is_accelerated():
        on_host = [item for item in items if item.on_host]
        _compare(subject, [i for i in items if not i.on_host], _device_memory(devices))
    _compare(subject, on_host, machine.available_memory())


def total(items: Sequence[Item]) -> int:
    """The sum of the sizes, in bytes."""
    return sum(item.size for item in items)


def _compare(
    subject: str, items: Sequence[Item], available: machine.Available | None
) -> None:
    needed = total(items)
    if available is None or needed <= available.size:
        return
    source = available.source
    limit = "" if source == "physical memory" else f" ({source})"
    raise OutOfMemoryError(
        f"{subject} needs {format_size(needed)} of memory, but only "
        f"{format_size(available.size)} are available{limit}: {_breakdown(items)}",
        _remedy(items, needed - available.size),
    )


@contextlib.contextmanager
def explain_out_of_memory(subject: str, items: Sequence[Item] = ()) -> Iterator[None]:
    """Raises an `OutOfMemoryError` if an allocation of NumPy or JAX fails."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        message = f"{subject} ran out of memory: {_reason(error)}"
        if items:
            message += f"; it needs at least {format_size(total(items))}: "
            message += _breakdown(items)
        raise OutOfMemoryError(message, _remedy(items, 0)) from error


@contextlib.contextmanager
def limit_building(recipe: Recipe) -> Iterator[None]:
    """Refuses a recipe that cannot be built or traced in the available memory.

    For sizes that become arrays before shapes are known, such as those of a map.
    """
    try:
        with machine.limit_allocations():
            yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        available = machine.available_memory()
        room = f" in {format_size(available.size)} of memory" if available else ""
        raise OutOfMemoryError(
            f"recipe `{recipe.name}` cannot be built{room}: {_reason(error)}",
            _largest_size(recipe),
        ) from error


def _breakdown(items: Sequence[Item]) -> str:
    """Lists the largest items: `replay 16.0 GiB (1 seed × …), unroll 2.1 GiB`."""
    largest = sorted(items, key=lambda item: -item.size)[:_MAX_LISTED]
    listed = [item for item in largest if item.size * 100 >= largest[0].size]
    words = [
        f"{item.name} {format_size(item.size)}"
        + (f" ({item.detail})" if item.detail else "")
        for item in listed
    ]
    return ", ".join(words)


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError):
        return True
    # JAX reports a failure after dispatch only as `INTERNAL`.
    return "RESOURCE_EXHAUSTED" in str(error) or _ALLOCATION in str(error)


def _reason(error: Exception) -> str:
    """The first line of an error of NumPy or JAX."""
    text = str(error).strip().partition("\n")[0]
    if _ALLOCATION in text:
        text = text[text.index(_ALLOCATION) :]
    text = text.removeprefix("RESOURCE_EXHAUSTED: ").rstrip(".")
    return text or "an allocation failed"


def _largest_size(recipe: Recipe) -> str:
    """A hint: the option with the largest integer that may be a size."""
    sizes = memory_usage.recipe_sizes(recipe)
    value, name = max((value or 0, name) for name, value in sizes.items())
    return f"lower the largest size in the recipe, `{name}` ({value:,})"


def _remedy(items: Sequence[Item], excess: int) -> str:
    """A hint: the options of the largest item, with the values that would fit."""
    variable = [item for item in items if item.options]
    if not variable:
        return "choose smaller sizes, or a machine with more memory"
    largest = max(variable, key=lambda item: item.size)
    words = []
    for name, value in largest.options.items():
        words.append(f"`{name}`")
        if not excess or not value:
            continue
        fits = _largest_fitting_value(value, largest.size, excess)
        if fits:
            words[-1] += f" ({fits:,} would fit)"
    return f"lower {' or '.join(words)}"


def _largest_fitting_value(value: int, size: int, excess: int) -> int:
    """The largest value of two digits with which `size` is smaller by `excess`."""
    max_value = value * (size - excess) // size
    if max_value < 1:
        return 0
    digits = 10 ** max(0, len(str(max_value)) - 2)
    return max_value // digits * digits


def _device_memory(devices: int) -> machine.Available | None:
    """The free memory of the first accelerators together; None if it is unknown."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()[:devices]]
    if not all("bytes_limit" in record for record in stats):
        return None
    free = (record["bytes_limit"] - record.get("bytes_in_use", 0) for record in stats)
    source = "the accelerator" if devices == 1 else f"{devices} accelerators"
    return machine.Available(devices * min(free), source)
