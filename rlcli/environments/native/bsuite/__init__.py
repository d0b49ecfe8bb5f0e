"""bsuite: small tasks, each of which tests one capability of an agent.

Belongs here: the tasks of the Behaviour Suite for Reinforcement Learning.
May import: `environments.drawing`, other native environments, and the ground.

From the Behaviour Suite for Reinforcement Learning (Osband et al., 2019,
https://arxiv.org/abs/1908.03568). Its variants with noisy and scaled rewards are the
wrappers `reward_noise` and `scale_reward`, which leave the logged counters unchanged.
"""

from typing import Annotated

from annotated_types import Ge, Le

Seed = Annotated[int, Ge(0), Le(2**32 - 1)]  # the seeds of NumPy's `RandomState`
