"""The context of an objective, and the policy loss that an objective returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from rlcli.errors import RlcliError
from rlcli.types import Array, Transition

# The metrics of the updater itself, which an objective may not return. Some are logged
# only with certain options.
UPDATER_METRICS = frozenset(
    {"loss", "gradient_norm", "entropy", "value_loss", "stopped", "explained_variance"}
)


class ObjectiveContext(NamedTuple):
    """A batch of rows of an unroll, or of one minibatch of it. Arrays are `[T, B]`.

    Only `log_prob` depends on the parameters that are learned. All other fields are
    computed before the update.
    """

    log_prob: Array  # log π(a|s)
    advantage: Array  # Â = G − v(s), or the tracer's; optionally normalized
    target: Array  # G, the value target of the tracer
    value: Array  # v(s); 0 without a baseline
    weight: Array  # 0 for rows that are ignored
    steps: Transition  # the tracer's rows, with the extras that the updater requires

    @property
    def log_ratio(self) -> Array:
        """The log of the ratio π(a|s)/μ(a|s) to the policy μ that acted, `[T, B]`.

        The objective must require the extra `log_prob`.
        """
        if "log_prob" not in self.steps.extras:
            raise RlcliError(
                "an objective uses `log_ratio`, but does not require the extra "
                "`log_prob`",
                'declare it: `@objective(requires=("log_prob",))`',
            )
        return self.log_prob - self.steps.extras["log_prob"]


class PolicyLoss(NamedTuple):
    """The result of an objective."""

    loss: Array  # `[T, B]`: the policy loss of each row
    # `[T, B]` each, logged as the mean over rows of weight > 0
    metrics: Mapping[str, Array] = MappingProxyType({})


Objective = Callable[..., PolicyLoss]
