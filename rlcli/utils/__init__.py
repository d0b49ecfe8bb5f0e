"""Utils: the public toolbox, for custom training loops and experiments.

Belongs here: functions for users, including `custom_loop` and `simulation`.
May import: everything but cli. Nothing in rlcli imports utils.

Names, keywords and semantics are those of coax; `docs/utils.md` lists all functions.
Importing this package imports JAX.
"""

from rlcli.networks.fractions import (
    quantile_cos_embedding,
    quantiles,
    quantiles_uniform,
)
from rlcli.utils.arrays import (
    argmax,
    argmin,
    check_array,
    clipped_logit,
    diff_transform,
    diff_transform_matrix,
    double_relu,
    idx,
    isscalar,
)
from rlcli.utils.control import make_dmc
from rlcli.utils.elements import check_preprocessors, default_preprocessor, safe_sample
from rlcli.utils.environments import (
    generate_gif,
    get_env_attr,
    get_transition_batch,
    has_env_attr,
    render_episode,
)
from rlcli.utils.kinds import (
    is_policy,
    is_qfunction,
    is_reward_function,
    is_stochastic,
    is_transition_model,
    is_vfunction,
)
from rlcli.utils.pickling import dump, dumps, load, loads
from rlcli.utils.printing import (
    enable_logging,
    pretty_print,
    pretty_repr,
    reload_recursive,
)
from rlcli.utils.running import (
    ExponentialAverage,
    OrnsteinUhlenbeckNoise,
    RollingAverage,
    StepwiseLinearFunction,
)
from rlcli.utils.segment_tree import MaxTree, MinTree, SegmentTree, SumTree
from rlcli.utils.trees import (
    batch_to_single,
    chunks_pow2,
    get_grads_diagnostics,
    get_magnitude_quantiles,
    merge_dicts,
    single_to_batch,
    stack_trees,
    sync_shared_params,
    tree_ravel,
)
from rlcli.utils.wrapping import docstring, jit, unvectorize

__all__ = [
    "ExponentialAverage",
    "MaxTree",
    "MinTree",
    "OrnsteinUhlenbeckNoise",
    "RollingAverage",
    "SegmentTree",
    "StepwiseLinearFunction",
    "SumTree",
    "argmax",
    "argmin",
    "batch_to_single",
    "check_array",
    "check_preprocessors",
    "chunks_pow2",
    "clipped_logit",
    "default_preprocessor",
    "diff_transform",
    "diff_transform_matrix",
    "docstring",
    "double_relu",
    "dump",
    "dumps",
    "enable_logging",
    "generate_gif",
    "get_env_attr",
    "get_grads_diagnostics",
    "get_magnitude_quantiles",
    "get_transition_batch",
    "has_env_attr",
    "idx",
    "is_policy",
    "is_qfunction",
    "is_reward_function",
    "is_stochastic",
    "is_transition_model",
    "is_vfunction",
    "isscalar",
    "jit",
    "load",
    "loads",
    "make_dmc",
    "merge_dicts",
    "pretty_print",
    "pretty_repr",
    "quantile_cos_embedding",
    "quantiles",
    "quantiles_uniform",
    "reload_recursive",
    "render_episode",
    "safe_sample",
    "single_to_batch",
    "stack_trees",
    "sync_shared_params",
    "tree_ravel",
    "unvectorize",
]
