"""bsuite: small tasks, each of which tests one capability of an agent.

Belongs here: the tasks of the behaviour suite for reinforcement learning.
May import: `environments.drawing`, other native environments, and the ground.

From the behaviour suite for reinforcement learning (Osband et al., 2019,
https://arxiv.org/abs/1908.03568). Its variants with noise and with scaled rewards are
the wrappers `reward_noise` and `scale_reward`; what they do to rewards leaves the
counters that are logged as they are.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le

Seed = Annotated[int, Ge(0), Le(2**32 - 1)]  # what NumPy's `RandomState` takes
