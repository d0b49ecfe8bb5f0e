"""No code from data: which modules of rlcli may unpickle, evaluate or import by name.

The syntax trees of all modules are searched for references, not only for calls, under
any alias. tests/fuzz tries the same from outside, with an audit hook.
"""

import ast
import functools
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "rlcli"
# Names that run code from a string, a file or the network; a prefix ends with a dot.
FORBIDDEN = (
    *("eval", "exec", "compile", "__import__", "breakpoint"),
    *(
        "pickle.",
        "_pickle.",
        "cPickle.",
        "dill.",
        "cloudpickle.",
        "joblib.",
        "jsonpickle.",
    ),
    *("marshal.", "shelve.", "runpy.", "code.Interactive", "codeop."),
    *("os.system", "os.popen", "os.exec", "os.spawn", "os.posix_spawn", "pty.", "imp."),
    *("importlib.import_module", "importlib.util.spec", "importlib.util.module"),
    *("importlib.machinery.S", "importlib.reload"),
    *("yaml.load", "yaml.unsafe_", "yaml.full_", "yaml.Loader", "yaml.CLoader"),
    *("yaml.Unsafe", "yaml.CUnsafe", "yaml.FullLoader", "yaml.CFullLoader"),
    *("numpy.load", "numpy.lib.format.read_array", "numpy.fromregex", "jax.numpy.load"),
    *("torch.load", "pandas.read_pickle", "haiku.data_structures.load"),
)
ALLOWED = {
    # An unpickler without globals, for content that was checked opcode by opcode.
    "rlcli.runs.pickles": {"pickle.Unpickler", "pickle.UnpicklingError"},
    # The headers of arrays, whose dtypes have no objects.
    "rlcli.replays.datasets.dataset_files": {"numpy.lib.format.read_array_header"},
    # Modules of rlcli, by the name of an attribute, a command, a kind or a format.
    "rlcli": {"importlib.import_module"},
    "rlcli.cli": {"importlib.import_module"},
    "rlcli.evaluation.export.export": {"importlib.import_module"},
    "rlcli.registry.parts": {"importlib.import_module"},
    # Libraries that rlcli names itself.
    "rlcli.registry.libraries": {"importlib.import_module"},
    "rlcli.training.checks.doctor": {"importlib.import_module"},
    # Modules of a package of PettingZoo, by the name of an environment.
    "rlcli.environments.adapters.pettingzoo": {"importlib.import_module"},
    # Import paths of recipes: only of files that the user names, or with `--trust`.
    # The loader compiles the source of a module instead of bytecode beside it.
    "rlcli.registry.user_code": {
        "importlib.import_module",
        "importlib.machinery.SourceFileLoader",
    },
    # Reloads edited modules in a notebook, when the user asks for it.
    "rlcli.utils.printing": {"importlib."},
}


@functools.cache
def modules():
    """The syntax trees of all modules of rlcli, by name."""
    trees = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        trees[name.removesuffix(".__init__")] = ast.parse(path.read_text("utf-8"))
    return trees


def dotted(node):
    """The names of `a.b.c`, first to last; () for other expressions."""
    match node:
        case ast.Name():
            return (node.id,)
        case ast.Attribute():
            before = dotted(node.value)
            return (*before, node.attr) if before else ()
    return ()


def references(tree):
    """All dotted names in a module, with its aliases resolved."""
    aliases, own = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                first = each.name.partition(".")[0]
                aliases[each.asname or first] = each.name if each.asname else first
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                aliases[each.asname or each.name] = f"{node.module}.{each.name}"
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            head, *rest = dotted(node) or ("",)
            if head in aliases or (head and head not in own):
                yield ".".join([aliases.get(head, head), *rest])


@functools.cache
def is_forbidden(name):
    if name.startswith("pickle.") and name.removeprefix("pickle.").isupper():
        return False  # the code of an opcode, which runs nothing
    return any(
        name == each or (not each.isidentifier() and name.startswith(each))
        for each in FORBIDDEN
    )


@functools.cache
def found(tree):
    """The forbidden names that a module refers to."""
    return {name for name in references(tree) if is_forbidden(name)}


def test_a_module_runs_code_only_where_the_list_says_why():
    surplus = {}
    for module, tree in modules().items():
        allowed = tuple(ALLOWED.get(module, ()))
        left = {
            name
            for name in found(tree)
            if not any(name == each or name.startswith(each) for each in allowed)
        }
        if left:
            surplus[module] = left
    assert surplus == {}


def test_the_list_names_nothing_that_is_gone():
    for module, allowed in ALLOWED.items():
        names = found(modules()[module])
        for each in allowed:
            assert any(name.startswith(each) for name in names), (module, each)


def test_arrays_are_loaded_without_pickles_and_commands_run_without_a_shell():
    problems = []
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    value = getattr(keyword.value, "value", True)
                    if keyword.arg in ("allow_pickle", "shell") and value is not False:
                        problems.append((module, node.lineno))
    assert problems == []


def test_the_search_finds_aliases_and_references():
    source = """
import numpy as np, pickle as p
from pickle import loads as restore
from yaml import unsafe_load
first = p.loads
def f(x): return np.load(x), restore(x), eval(x), unsafe_load(x)
"""
    assert found(ast.parse(source)) == {
        *("pickle.loads", "numpy.load", "eval", "yaml.unsafe_load")
    }
