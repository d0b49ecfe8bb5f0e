"""Sequential test: decides from paired seeds, look after look, whether groups differ.

A pair is one seed of two groups, and a stratum an environment. The test knows their
differences `[pairs, strata]`, and looks at them after each block of pairs.

**At one look** it flips signs (Fisher, 1935). If the mean difference is δ and the
differences are symmetric about δ, each pattern of signs of d − δ was equally likely, so
Σ (d − δ) must be extreme among those of all patterns. The patterns are those of a group
(a linear code), which makes the test exact without random numbers: (Koning and Hemerik,
2024), https://arxiv.org/abs/2202.00967. Up to 15 differences it contains all patterns.

**At several looks** the paths of all patterns are treated alike: until a look, at most
the share of α that is spent by then may have been the most extreme one of those left.
This is the exact group-sequential test of (Mehta et al., 1994),
https://doi.org/10.2307/2533441, with the α-spending function of (Lan and DeMets, 1983),
https://doi.org/10.1093/biomet/70.3.659, that resembles O'Brien and Fleming's bounds:

    α(t) = 2 − 2 Φ(z₁₋α/₂ / √t)        t = pairs so far / planned pairs

**Assumptions.** Two groups with one distribution have differences that are symmetric
about 0, whatever the distribution: heavy-tailed, bimodal or bounded. So a difference
that does not exist is found with a probability of at most α, for any number of pairs.
The interval, and with it the claim that there is no large difference, is exact if the
differences of all strata are symmetric about one mean, and holds approximately, for
many pairs, if they have a variance: no interval of a mean is exact for all
distributions (Bahadur and Savage, 1956), https://doi.org/10.1214/aoms/1177728077.
Strata may differ in spread.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

BITS = 15  # there are 2¹⁵ patterns of signs
_POWER_BITS, _STUDIES = 12, 1_000  # of the estimate of power
_UNITS = 2**33  # of the largest difference; sums of 2¹⁹ differences are exact
BETTER, WORSE, SAME, UNDECIDED = "better", "worse", "no difference", "undecided"


class Decision(NamedTuple):
    """What the differences show, at the first look at which they decide it."""

    verdict: str
    pairs: int  # until that look
    mean: float  # of the differences
    # The mean differences that are not rejected lie between them.
    low: float
    high: float


def spend(alpha: float, fraction: float) -> float:
    """The share of α that is spent at a fraction of the planned pairs, in (0, 1]."""
    normal = NormalDist()
    return min(2 * normal.cdf(normal.inv_cdf(alpha / 2) / math.sqrt(fraction)), alpha)


@np.errstate(over="ignore")  # the mean of the largest floats is inf
def decide(
    differences: np.ndarray,
    looks: Sequence[int],
    total: int,
    effect: float,
    alpha: float,
) -> Decision:
    """Decides whether the mean difference is above, below or near 0.

    The verdict is the first that the interval of a look allows: `better` above 0,
    `worse` below 0, `no difference` within ±`effect`.

    Args:
        differences: `[pairs, strata]`.
        looks: the numbers of pairs at the looks so far, increasing.
        total: the planned number of pairs, at least that of the last look.
        effect: the smallest difference that matters.
        alpha: the level, of both sides together.
    """
    paths = _Paths(differences, looks, total, effect, alpha)
    look, verdict = paths.find_verdict()
    pairs, effect_units = looks[look], paths.effect
    low = paths.bound(look, 1, (-effect_units, 0)) * paths.unit
    high = paths.bound(look, -1, (effect_units, 0)) * paths.unit
    return Decision(verdict, pairs, float(np.mean(differences[:pairs])), low, high)


@functools.lru_cache(maxsize=64)  # cells of a study often have one deviation
def estimate_power(
    effect: float, std: float, looks: range | tuple[int, ...], alpha: float
) -> tuple[float, float]:
    """How often studies find a difference of `effect`, and how often they exclude it.

    The second is the share of studies with the verdict `no difference` if there is
    none. `std` is the standard deviation of the difference of a pair, its mean over
    strata. Simulates 1 000 studies with normal differences, the same in all strata: if
    strata differ in their mean differences, the power is less.
    """
    # Enough patterns that a small α has some to spend.
    bits = min(BITS, max(_POWER_BITS, math.ceil(math.log2(16 / alpha))))
    noise = np.random.default_rng(0).normal(0, std, (_STUDIES, looks[-1], 1))

    def share(truth: float, wanted: str) -> float:
        studies = (
            _Paths(each + truth, looks, looks[-1], effect, alpha, bits)
            for each in noise
        )
        return sum(each.find_verdict()[1] == wanted for each in studies) / _STUDIES

    return share(effect, BETTER), share(0.0, SAME)


class _Paths:
    """The paths of Σ (d − δ) over looks, of all patterns of signs; in whole units."""

    def __init__(
        self,
        differences: np.ndarray,
        looks: Sequence[int],
        total: int,
        effect: float,
        alpha: float,
        bits: int = BITS,
    ) -> None:
        self.unit = max(float(np.abs(differences).max()), effect) / _UNITS
        values = np.rint(differences / self.unit)
        self.effect = round(effect / self.unit)
        self._largest = int(np.abs(values).max()) + 1
        self._counts = [int(spend(alpha / 2, n / total) * 2**bits) for n in looks]
        ends = [n * values.shape[1] for n in looks]
        blocks = [*itertools.pairwise([0, *ends])]
        # At each look, and exact.
        self._sums = [*itertools.accumulate(flip(values.ravel(), blocks, bits))]
        self._signs = _sum_signs(tuple(blocks), bits)

    def find_verdict(self) -> tuple[int, str]:
        """The first look with a verdict, and that; without one the last look."""
        last = len(self._counts)
        near = [self._reject(side * -self.effect, side) for side in (1, -1)]
        found = [(last, UNDECIDED), (self._reject(0, 1), BETTER)]
        found += [(self._reject(0, -1), WORSE), (max(near), SAME)]
        look, verdict = min(found, key=lambda each: each[0])
        return min(look, last - 1), verdict

    def _reject(self, shift: int, side: int, until: int | None = None) -> int:
        """The first look that rejects a mean difference; the number of looks if none.

        `side`: 1 rejects it as too low, −1 as too high. The path of the data, without
        flips, is the first one.
        """
        alive = np.ones(len(self._sums[0]), bool)
        for look, most in enumerate(self._counts[:until]):
            left = most - np.count_nonzero(~alive)
            if left > 0:
                path = side * (self._sums[look] - shift * self._signs[look])
                path[~alive] = -np.inf
                alive &= path <= np.partition(path, -left - 1)[-left - 1]  # ties stay
                if not alive[0]:
                    return look
        return len(self._counts)

    def bound(self, look: int, side: int, known: Sequence[int]) -> float:
        """The end of the interval at a look: the last mean difference it rejects.

        `known`: differences that were tried before, with which it has to agree.
        """

        def rejects(shift: int) -> bool:
            return self._reject(shift, side, look + 1) <= look

        tried = [each for each in (-side * self._largest, *known) if rejects(each)]
        if not tried:
            return -side * math.inf
        rejected = max(tried, key=lambda shift: side * shift)
        kept = side * max(self._largest, side * rejected + 1)  # beyond all differences
        while abs(kept - rejected) > 1:
            middle = (kept + rejected) // 2
            if rejects(middle):
                rejected = middle
            else:
                kept = middle
        return rejected


def flip(
    values: np.ndarray, blocks: Sequence[tuple[int, int]], bits: int = BITS
) -> np.ndarray:
    """The sums of the values of each block, in each pattern of signs.

    Each value has a code, a number of `bits` binary digits. Its sign in pattern u is −1
    if u and the code have an odd number of ones in common, so the product of two
    patterns is another one. The first pattern has no flips. The first codes are the
    powers of two, which have all patterns there are, and all codes differ until they
    repeat: then two values have one sign in all patterns, which is still a group.

    So the sums of all patterns are the Walsh–Hadamard transform of the values at the
    places of their codes, which is as fast as that of (Fino and Algazi, 1976),
    https://doi.org/10.1109/TC.1976.1674569. Each pass is in the order of the memory.

    Args:
        values: `[values]`.
        blocks: the first value and the one behind the last, of each block.

    Returns:
        `[blocks, 2^bits]`.
    """
    codes, size = _make_codes(bits), 2**bits
    sums = np.empty((len(blocks), size))
    for row, (start, stop) in zip(sums, blocks, strict=True):
        places = codes[np.arange(start, stop) % len(codes)]
        row[:] = np.bincount(places, values[start:stop], size)
    for _ in range(bits):
        first, second = sums.reshape(len(blocks), 2, -1).swapaxes(0, 1)
        sums = np.empty((len(blocks), size // 2, 2))
        np.add(first, second, out=sums[..., 0])
        np.subtract(first, second, out=sums[..., 1])
    return sums.reshape(len(blocks), size)


@functools.lru_cache(maxsize=8)
def _sum_signs(blocks: Sequence[tuple[int, int]], bits: int) -> list[np.ndarray]:
    """The sums of the signs themselves, until the end of each block."""
    return [*itertools.accumulate(flip(np.ones(blocks[-1][1]), blocks, bits))]


@functools.cache
def _make_codes(bits: int) -> np.ndarray:
    numbers = np.arange(1, 2**bits)
    is_power = np.bitwise_count(numbers) == 1
    others = np.random.default_rng(0).permutation(numbers[~is_power])
    return np.concatenate([numbers[is_power], others])
