"""Running numbers: averages of a stream, action noise, and schedules."""

import itertools
import math
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt


class RollingAverage:
    """The mean of the last `n` numbers, or of all if there are fewer.

        v = (x₁ + … + xₖ) / k        k = min(numbers seen, n)

    0 before the first number. The sum is computed again each time, so that rounding
    errors do not accumulate.
    """

    def __init__(self, n: int = 100) -> None:
        self._window: deque[float] = deque(maxlen=_check_positive(n))

    @property
    def value(self) -> float:
        """The current average."""
        return math.fsum(self._window) / max(len(self._window), 1)

    def update(self, x: float) -> float:
        """Adds a number and returns the average."""
        self._window.append(float(x))
        return self.value


class ExponentialAverage:
    """An exponential moving average with rate 1/n, without initial bias.

        v ← v + (x − v) / min(k, n)        k: numbers seen, x the k-th

    The first `n` numbers have equal weights; later the weights decay exponentially. 0
    before the first number.
    """

    def __init__(self, n: int = 100) -> None:
        self._max_count = _check_positive(n)
        self._count = 0
        self._value = 0.0

    @property
    def value(self) -> float:
        """The current average."""
        return self._value

    def update(self, x: float) -> float:
        """Adds a number and returns the average."""
        self._count = min(self._count + 1, self._max_count)
        self._value += (float(x) - self._value) / self._count
        return self._value


def _check_positive(n: int) -> int:
    if n < 1:
        raise ValueError(f"expected a window of at least 1, got {n}")
    return n


class OrnsteinUhlenbeckNoise:
    """Adds Ornstein-Uhlenbeck (OU) noise, which is correlated in time, to actions.

        Xₜ = Xₜ₋₁ − θ (Xₜ₋₁ − μ) + σ ε        ε ~ N(0, 1), X₀ = μ
        Ãₜ = Aₜ + Xₜ, clipped to [min_value, max_value]

    The noise reverts to its mean μ at the rate θ, so it keeps its direction for about
    1/θ steps, which explores systems with momentum (Lillicrap et al., 2016,
    https://arxiv.org/abs/1509.02971; Uhlenbeck and Ornstein, 1930). The bounds apply to
    the resulting action, not to X.

    Args:
        mu: the mean; all arrays broadcast to the shape of the action.
        sigma: the scale of the noise, not negative.
        theta: the rate of mean reversion, not negative.
        min_value: the lower bound of actions; None for no bound.
        max_value: the upper bound of actions; None for no bound.
        random_seed: seed of the noise.
    """

    def __init__(
        self,
        mu: npt.ArrayLike = 0.0,
        sigma: npt.ArrayLike = 1.0,
        theta: npt.ArrayLike = 0.15,
        min_value: npt.ArrayLike | None = None,
        max_value: npt.ArrayLike | None = None,
        random_seed: int | None = None,
    ) -> None:
        if np.any(np.asarray(sigma) < 0) or np.any(np.asarray(theta) < 0):
            raise ValueError(
                f"expected sigma and theta of at least 0, got {sigma} and {theta}"
            )
        self.mu = mu
        self.sigma = sigma
        self.theta = theta
        self.min_value = min_value
        self.max_value = max_value
        self.random_seed = random_seed
        self._random = np.random.default_rng(random_seed)
        self._noise: np.ndarray | None = None

    def reset(self) -> None:
        """Resets the process to its mean, as at the start of an episode."""
        self._noise = None

    def __call__(self, a: npt.ArrayLike) -> np.ndarray:
        """Returns the action `[...]` with noise. The dtype is kept if it is a float."""
        action = np.asarray(a)
        if not np.issubdtype(action.dtype, np.floating):
            action = action.astype(np.float64)
        mu = np.broadcast_to(np.asarray(self.mu, np.float64), action.shape)
        noise = mu if self._noise is None else self._noise
        if noise.shape != action.shape:
            raise ValueError(
                f"expected an action of shape {noise.shape}, got {action.shape}: "
                "call `reset` before actions of another shape"
            )
        white = self._random.standard_normal(action.shape)
        theta, sigma = np.asarray(self.theta), np.asarray(self.sigma)
        self._noise = np.asarray(noise - theta * (noise - mu) + sigma * white)
        low = -np.inf if self.min_value is None else self.min_value
        high = np.inf if self.max_value is None else self.max_value
        # Clipped after the conversion, which could round the action beyond the bounds.
        dtype = action.dtype
        noisy = (action + self._noise).astype(dtype)
        low, high = np.asarray(low, dtype), np.asarray(high, dtype)
        return np.asarray(np.clip(noisy, low, high))


class StepwiseLinearFunction:
    """A piecewise linear schedule, constant before the first and after the last point.

        f(t) = v₀ for t ≤ t₀, vₙ for t ≥ tₙ, else the linear interpolation

        epsilon = StepwiseLinearFunction((0, 1.0), (1_000_000, 0.1), (2_000_000, 0.01))
        epsilon(500_000)  # 0.55

    Args:
        steps: pairs (timestep, value), with increasing timesteps.
    """

    def __init__(self, *steps: tuple[int, float]) -> None:
        if not steps or any(len(step) != 2 for step in steps):
            raise ValueError(f"expected pairs (timestep, value), got {steps}")
        if any(
            time >= next_time for (time, _), (next_time, _) in itertools.pairwise(steps)
        ):
            raise ValueError(f"expected increasing timesteps, got {steps}")
        self.steps = steps
        self._times = np.array([time for time, _ in steps], np.float64)
        self._values = np.array([value for _, value in steps], np.float64)

    def __call__(self, timestep: npt.ArrayLike) -> Any:
        """The value at a timestep: a float, or an array for an array of timesteps."""
        value = np.interp(np.asarray(timestep, np.float64), self._times, self._values)
        return float(value) if np.ndim(value) == 0 else value
