"""Utils: the public toolbox, for custom training loops and experiments.

Belongs here: functions for users, including `custom_loop` and `simulation`.
May import: everything but cli. Nothing in rlcli imports utils.

Names, keywords and semantics are those of coax; `docs/utils.md` lists all functions.
Importing this package imports JAX.
"""

from rlcli.networks.fractions import quantile_cos_embedding as quantile_cos_embedding
from rlcli.networks.fractions import quantiles as quantiles
from rlcli.networks.fractions import quantiles_uniform as quantiles_uniform
from rlcli.utils.arrays import argmax as argmax
from rlcli.utils.arrays import argmin as argmin
from rlcli.utils.arrays import check_array as check_array
from rlcli.utils.arrays import clipped_logit as clipped_logit
from rlcli.utils.arrays import diff_transform as diff_transform
from rlcli.utils.arrays import diff_transform_matrix as diff_transform_matrix
from rlcli.utils.arrays import double_relu as double_relu
from rlcli.utils.arrays import idx as idx
from rlcli.utils.arrays import isscalar as isscalar
from rlcli.utils.control import make_dmc as make_dmc
from rlcli.utils.elements import check_preprocessors as check_preprocessors
from rlcli.utils.elements import default_preprocessor as default_preprocessor
from rlcli.utils.elements import safe_sample as safe_sample
from rlcli.utils.environments import generate_gif as generate_gif
from rlcli.utils.environments import get_env_attr as get_env_attr
from rlcli.utils.environments import get_transition_batch as get_transition_batch
from rlcli.utils.environments import has_env_attr as has_env_attr
from rlcli.utils.environments import render_episode as render_episode
from rlcli.utils.kinds import is_policy as is_policy
from rlcli.utils.kinds import is_qfunction as is_qfunction
from rlcli.utils.kinds import is_reward_function as is_reward_function
from rlcli.utils.kinds import is_stochastic as is_stochastic
from rlcli.utils.kinds import is_transition_model as is_transition_model
from rlcli.utils.kinds import is_vfunction as is_vfunction
from rlcli.utils.pickling import dump as dump
from rlcli.utils.pickling import dumps as dumps
from rlcli.utils.pickling import load as load
from rlcli.utils.pickling import loads as loads
from rlcli.utils.printing import enable_logging as enable_logging
from rlcli.utils.printing import pretty_print as pretty_print
from rlcli.utils.printing import pretty_repr as pretty_repr
from rlcli.utils.printing import reload_recursive as reload_recursive
from rlcli.utils.running import ExponentialAverage as ExponentialAverage
from rlcli.utils.running import OrnsteinUhlenbeckNoise as OrnsteinUhlenbeckNoise
from rlcli.utils.running import RollingAverage as RollingAverage
from rlcli.utils.running import StepwiseLinearFunction as StepwiseLinearFunction
from rlcli.utils.segment_tree import MaxTree as MaxTree
from rlcli.utils.segment_tree import MinTree as MinTree
from rlcli.utils.segment_tree import SegmentTree as SegmentTree
from rlcli.utils.segment_tree import SumTree as SumTree
from rlcli.utils.trees import batch_to_single as batch_to_single
from rlcli.utils.trees import chunks_pow2 as chunks_pow2
from rlcli.utils.trees import get_grads_diagnostics as get_grads_diagnostics
from rlcli.utils.trees import get_magnitude_quantiles as get_magnitude_quantiles
from rlcli.utils.trees import merge_dicts as merge_dicts
from rlcli.utils.trees import single_to_batch as single_to_batch
from rlcli.utils.trees import stack_trees as stack_trees
from rlcli.utils.trees import sync_shared_params as sync_shared_params
from rlcli.utils.trees import tree_ravel as tree_ravel
from rlcli.utils.wrapping import docstring as docstring
from rlcli.utils.wrapping import jit as jit
from rlcli.utils.wrapping import unvectorize as unvectorize
