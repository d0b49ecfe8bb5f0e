"""Records: what `rlcli.inspect` returns."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class ArrayRecord:
    """An array of a batch; statistics are over its rows of weight > 0."""

    name: str  # such as `reward`, or `obs/position`
    shape: tuple[int, ...]  # `[T, B, ...]`
    mean: float
    std: float
    min: float
    max: float
    finite: bool  # whether all numbers are
    constant: bool  # whether there are several rows, which are all equal


@dataclasses.dataclass(frozen=True)
class LossRecord:
    """A term of a loss."""

    groups: tuple[str, ...]  # of parameters that its gradient step changes
    name: str
    value: float  # the weighted mean over the batch


@dataclasses.dataclass(frozen=True)
class LayerRecord:
    """A layer: Euclidean norms of all its numbers."""

    name: str  # the tree path, such as `policy/mlp/linear_1`
    parameters: int
    norm: float  # of the parameters
    gradient: float  # of the gradient, before the optimizer clips it
    change: float  # of what the optimizer adds to the parameters


@dataclasses.dataclass(frozen=True)
class ActivationRecord:
    """An activation function of a network, on the observations of the batch."""

    function: str  # of the updater, such as `policy`
    layer: str  # the tree path of the parameters before it
    activation: str  # such as `relu`
    units: int
    dead: float  # the fraction of units with the same output for every row
    saturated: float | None  # of a tanh: the fraction of outputs beyond ±0.99


@dataclasses.dataclass(frozen=True)
class ActionRecord:
    """One action of a Discrete space."""

    action: int
    batch: float  # its fraction of the batch
    replay: float | None  # its fraction of the replay
    probability: float | None  # its mean probability in the evaluated episodes


@dataclasses.dataclass(frozen=True)
class ValueBin:
    """Steps of evaluated episodes with similar value estimates."""

    steps: int
    value: float  # the mean estimate
    result: float  # the mean discounted return from these steps on


@dataclasses.dataclass(frozen=True)
class ValueRecord:
    """The value estimates of evaluated episodes, and what was then obtained."""

    episodes: int
    steps: int  # that were compared: not those whose return a time limit cuts
    value: float  # the mean estimate v(s)
    result: float  # the mean discounted return Σ γᵏ r from the same steps on
    correlation: float | None  # None if one of them is constant
    explained_variance: float | None  # 1 − Var(return − value) / Var(return)
    bins: Sequence[ValueBin]  # fifths of the steps, by increasing value
    entropy: float | None  # of the policy, in nats; the mean over the steps


@dataclasses.dataclass(frozen=True)
class ReplayRecord:
    """The steps in a replay; statistics are of at most 2 000 of them."""

    name: str
    capacity: int  # 0 where it is not limited
    stored: int
    episodes: float  # ends of episodes per stored step
    terminated: float  # terminations per stored step
    rewards: ArrayRecord
    rewarded: float  # the fraction of steps whose reward is not 0


@dataclasses.dataclass(frozen=True)
class InspectionData:
    """The fields of an `Inspection`.

    `signs` are sentences about what is often wrong where agents do not learn, see the
    guide "My agent does not learn". `notes` say what could not be shown.
    """

    run: str | None  # the folder of the run
    checkpoint: str
    updater: str
    seed: int
    step: int  # environment steps of the seed
    update: int  # updates so far
    gradient_steps: int  # in the next update
    batch: Sequence[ArrayRecord]
    losses: Sequence[LossRecord]  # of its first gradient steps
    layers: Sequence[LayerRecord]
    activations: Sequence[ActivationRecord]
    actions: Sequence[ActionRecord]
    value: ValueRecord | None
    replay: ReplayRecord | None
    signs: Sequence[str]
    notes: Sequence[str]
