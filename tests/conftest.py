"""What all tests share. Comes before JAX: its settings and the layout are made here."""

import contextlib
import ctypes
import gc
import os
import re
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from compilation import cache_programs, disable_optimization

from rlcli import registry
from rlcli.registry import user_code
from rlcli.xla import threads

# Keys and settings of rlcli's user: neither read nor changed by tests.
_HOME = tempfile.TemporaryDirectory(prefix="rlcli-home-")
for _name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
    os.environ[_name] = f"{_HOME.name}/{_name}"

# Containers often forbid Python to store bytecode: then each run of the suite compiles
# its tests again, and each process that it starts rlcli.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What one test or an earlier run of the suite has compiled, all others read, also in
# the processes that they start.
cache_programs(str(Path(__file__).parents[1] / ".pytest_cache" / "programs"))

# Tracing allocates so much that the default thresholds spend a fifth of the time of the
# suite in the garbage collector.
gc.set_threshold(200_000, 20, 50)

_PHYSICAL_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
_MEMORY_LIMIT = max(1.5 * 2**30, min(_PHYSICAL_MEMORY / 6, 4 * 2**30))  # of a process

# One thread: vmapped seeds never wait for each other. Two devices share the seeds.
threads.apply_layout(threads.Layout("one", 2))

if os.environ.get("RLCLI_CHECK_TYPES"):  # after the layout: the checks import JAX
    import type_checks

    type_checks.install()


@pytest.fixture(scope="module", autouse=True)
def _limit_memory():
    """Clears JAX's caches after a module if the process holds too much memory.

    They keep every program that was traced, and few modules share one. To clear them
    takes a second, and afterwards functions of JAX are traced again.
    """
    yield
    if "jax" in sys.modules and _resident_memory() > _MEMORY_LIMIT:
        sys.modules["jax"].clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)  # else the memory stays with the process


def _resident_memory() -> int:
    """The memory of this process in bytes; 0 where Linux's `/proc` is missing."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory of a test: an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fresh_imports(monkeypatch):
    """Forgets afterwards what a test imports, and where it searches for modules."""
    monkeypatch.setattr(user_code, "_folders", ())
    monkeypatch.setattr(user_code, "_added", ())
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = dict(sys.modules)
    yield
    for name, module in list(sys.modules.items()):
        is_new = before.get(name) is not module
        if is_new and user_code.is_user_file(getattr(module, "__file__", "") or ""):
            del sys.modules[name]


@pytest.fixture
def own_parts():
    """Forgets afterwards which parts a test has registered, not those it has loaded."""
    built_in = registry.parts._BUILT_IN
    before = dict(built_in)
    yield
    for key in built_in.keys() - before.keys():
        if not built_in[key].factory.__module__.startswith(("rlcli.", "optax.")):
            del built_in[key]
    built_in.update(before)


# Statistical tests refuse at p = 0.001. SciPy is imported by those who use them: it
# takes most of a second.


@pytest.fixture(scope="session")
def as_likely():
    """A function: Pearson's χ² test of counts against probabilities."""
    from scipy import stats

    def check(counts, probabilities):
        counts, probabilities = np.asarray(counts), np.asarray(probabilities)
        possible = probabilities > 0
        assert np.sum(counts[~possible]) == 0
        if np.sum(possible) == 1:
            return True
        expected = counts.sum() * probabilities[possible]
        assert expected.min() > 5
        return stats.chisquare(counts[possible], expected).pvalue > 0.001

    return check


@pytest.fixture(scope="session")
def is_uniform():
    """A function: the Kolmogorov-Smirnov test of each column."""
    from scipy import stats

    def check(sample, low, high):
        share = (np.asarray(sample, np.float64) - low) / np.subtract(high, low)
        return all(stats.kstest(column, "uniform").pvalue > 0.001 for column in share.T)

    return check


@pytest.fixture(scope="session")
def is_normal():
    """A function: Student's t-test, and the χ² and Kolmogorov-Smirnov tests.

    They test the mean, the standard deviation and the shape.
    """
    from scipy import stats

    def check(sample, mean, deviation):
        score = (np.ravel(sample).astype(np.float64) - mean) / deviation
        low, high = stats.chi2.interval(0.999, score.size)
        return (
            stats.ttest_1samp(score, 0).pvalue > 0.001
            and low < np.sum(score**2) < high
            and stats.kstest(score, "norm").pvalue > 0.001
        )

    return check


def pytest_addoption(parser, pluginmanager):
    parser.addoption("--part", help="K/N: only the tests of the K-th of N parts")
    # The only hook that comes before other files `conftest.py`, which import JAX.
    config = pluginmanager.getplugin("pytestconfig")
    _choose_compilation(config.known_args_namespace.markexpr)


def _choose_compilation(marks: str) -> None:
    """Disables optimization, except with `-m slow` or `-m xla`, as users have it.

    The processes of xdist inherit the variables.
    """
    is_optimized = re.search(r"(?<!not )\b(slow|xla)\b", marks)
    default = "false" if is_optimized else "true"
    if os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", default) == "true":
        disable_optimization()


def pytest_collection_modifyitems(config, items):
    if part := config.getoption("--part"):
        index, parts = map(int, part.split("/"))
        chosen, others = [], []
        for item in items:
            is_chosen = zlib.crc32(item.nodeid.encode()) % parts == index - 1
            (chosen if is_chosen else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = chosen


def pytest_collection_finish():
    """Exempts what was imported from garbage collection: it lives until the end."""
    gc.freeze()


def pytest_sessionfinish():
    """Exempts everything: pytest collects garbage several times when it ends."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Writes the skipped tests to the file in `RLCLI_SKIPPED`, for `pytest @FILE`."""
    if path := os.environ.get("RLCLI_SKIPPED"):
        reports = terminalreporter.stats.get("skipped", [])
        names = sorted({report.nodeid for report in reports})
        Path(path).write_text("\n".join([*names, ""]), encoding="utf-8")
