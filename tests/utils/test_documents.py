"""The names of the toolbox: those of the coax docs, with their docstrings."""

import inspect
import re
from pathlib import Path

import pytest

from rlcli import utils

TEXT = (Path(__file__).parents[2] / "docs" / "utils.md").read_text(encoding="utf-8")
PAGE = """
OrnsteinUhlenbeckNoise(mu=0.0, sigma=1.0, theta=0.15, min_value=None, max_value=None, \
random_seed=None)
StepwiseLinearFunction(*steps)
SegmentTree(capacity, reducer, init_value)
SumTree(capacity, random_seed=None)
MinTree(capacity)
MaxTree(capacity)
argmax(rng, arr, axis=-1)
argmin(rng, arr, axis=-1)
batch_to_single(pytree, index=0)
check_array(arr, ndim=None, ndim_min=None, ndim_max=None, dtype=None, shape=None, \
axis_size=None, axis=None, except_np=False)
check_preprocessors(space, *preprocessors, num_samples=20, random_seed=None)
clipped_logit(x, epsilon=1e-15)
default_preprocessor(space)
diff_transform(X, dtype='float32')
diff_transform_matrix(num_frames, dtype='float32')
docstring(obj)
double_relu(arr)
dump(obj, filepath)
dumps(obj)
enable_logging(name=None, level=20, output_filepath=None, output_level=None)
generate_gif(env, filepath, policy=None, resize_to=None, duration=50, \
max_episode_steps=None)
get_env_attr(env, attr, default='__ERROR__', max_depth=100)
get_grads_diagnostics(grads, key_prefix='', keep_tree_structure=False)
get_magnitude_quantiles(pytree, key_prefix='')
get_transition_batch(env, batch_size=1, gamma=0.9, random_seed=None)
has_env_attr(env, attr, max_depth=100)
idx(arr, axis=0)
is_policy(obj)
is_qfunction(obj)
is_reward_function(obj)
is_stochastic(obj)
is_transition_model(obj)
is_vfunction(obj)
isscalar(num)
jit(func, static_argnums=(), donate_argnums=())
load(filepath)
loads(s)
make_dmc(domain, task, seed=0, max_episode_steps=1000, height=84, width=84, camera_id=0)
merge_dicts(*dicts)
pretty_print(obj)
pretty_repr(o, d=0)
quantiles(batch_size, num_quantiles=200)
quantiles_uniform(rng, batch_size, num_quantiles=32)
quantile_cos_embedding(quantile_fractions, n=64)
reload_recursive(module, reload_external_modules=False)
render_episode(env, policy=None, step_delay_ms=0)
safe_sample(space, seed=None)
single_to_batch(pytree)
stack_trees(*trees)
sync_shared_params(*params, weights=None)
tree_ravel(pytree)
unvectorize(f, in_axes=0, out_axes=0)
""".strip().splitlines()
NAMES = [
    name
    for name, value in vars(utils).items()
    if not (name.startswith("_") or inspect.ismodule(value))
]
METHODS = {
    "OrnsteinUhlenbeckNoise": ["__call__(a)", "reset()"],
    "StepwiseLinearFunction": ["__call__(timestep)"],
    "SegmentTree": ["partial_reduce(start=0, stop=None)", "set_values(idx, values)"],
    "SumTree": ["inverse_cdf(u)", "sample(n)"],
    "RollingAverage": ["update(x)"],
    "ExponentialAverage": ["update(x)"],
}


def signature(name, function):
    """A name with its parameters and their defaults, without annotations."""
    parameters = inspect.signature(function).parameters.values()
    plain = [str(each.replace(annotation=each.empty)) for each in parameters]
    return f"{name}({', '.join(each for each in plain if each != 'self')})"


@pytest.mark.parametrize("line", PAGE)
def test_every_name_of_the_coax_docs_has_their_signature(line):
    name = line.partition("(")[0]
    assert signature(name, getattr(utils, name)) == line


def test_the_toolbox_has_the_names_of_the_coax_docs_and_three_more():
    more = {"chunks_pow2", "RollingAverage", "ExponentialAverage"}
    assert len(PAGE) == 52
    assert {*NAMES} == {line.partition("(")[0] for line in PAGE} | more


@pytest.mark.parametrize("name", METHODS)
def test_methods_have_their_signatures(name):
    kind = getattr(utils, name)
    for line in METHODS[name]:
        method = line.partition("(")[0]
        assert signature(method, getattr(kind, method)) == line


def test_the_document_has_a_line_per_name_with_the_docstring():
    lines = dict(re.findall(r"^- `(.+?\))`: (.+)$", TEXT, re.MULTILINE))
    functions = {name: getattr(utils, name) for name in NAMES}
    assert lines == {
        signature(name, function): function.__doc__.splitlines()[0]
        for name, function in functions.items()
    }
    assert len(re.findall(r"^- ", TEXT, re.MULTILINE)) == len(functions)


def test_the_import_of_the_document_works():
    names = {}
    exec(re.search(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[1], names)
    assert names["SumTree"] is utils.SumTree
