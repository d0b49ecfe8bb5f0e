"""Machine: the tightest memory limit on this process."""

import resource

import numpy as np
import pytest

from rlcli.xla.machine import available_memory, format_size, limit_allocations

GIB = 2**30
SOURCE = "the memory limit of its cgroup"


def write(root, path, text):
    path = root / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(text) + "\n")


@pytest.fixture
def root(tmp_path):
    """A machine with 12 GiB available."""
    write(tmp_path, "proc/meminfo", "MemTotal: 1 kB\nMemAvailable: 12582912 kB")
    return tmp_path


def test_the_default_limit_is_the_available_physical_memory(root):
    assert available_memory(root) == (12 * GIB, "physical memory")


def test_a_cgroup_of_version_2_leaves_its_limit_minus_what_is_used(root):
    write(root, "proc/self/cgroup", "0::/a/b")
    write(root, "sys/fs/cgroup/a/memory.max", 4 * GIB)
    write(root, "sys/fs/cgroup/a/memory.current", 3 * GIB)
    write(root, "sys/fs/cgroup/a/memory.stat", f"anon 5\ninactive_file {GIB}")
    write(root, "sys/fs/cgroup/a/b/memory.max", "max")
    write(root, "sys/fs/cgroup/a/b/memory.current", GIB)
    # Of the 3 GiB in use, 1 GiB is page cache, which the kernel reclaims.
    assert available_memory(root) == (2 * GIB, SOURCE)


def test_a_cgroup_of_version_1_has_files_of_other_names(root):
    write(root, "proc/self/cgroup", "5:cpu:/x\n4:foo,memory:/x\n0::/")
    write(root, "sys/fs/cgroup/memory/x/memory.limit_in_bytes", 4 * GIB)
    write(root, "sys/fs/cgroup/memory/x/memory.usage_in_bytes", GIB)
    write(root, "sys/fs/cgroup/memory/x/memory.stat", "total_inactive_file 0")
    write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", 2**63 - 4096)
    write(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", 9 * GIB)
    assert available_memory(root) == (3 * GIB, SOURCE)


def test_a_container_with_a_path_of_its_host_uses_the_top_folder(root):
    write(root, "proc/self/cgroup", "0::/../docker/0123")
    write(root, "sys/fs/cgroup/memory.max", 2 * GIB)
    write(root, "sys/fs/cgroup/memory.current", GIB)
    assert available_memory(root) == (GIB, SOURCE)


def test_ulimit_leaves_what_the_process_has_not_mapped(root):
    page = resource.getpagesize()
    write(root, "proc/self/statm", f"{GIB // page} 1 1 1 0 1 0")
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (100 * GIB, before[1]))
        write(root, "proc/meminfo", f"MemAvailable: {2**30} kB")
        assert available_memory(root) == (99 * GIB, "`ulimit -v`")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_the_memory_of_an_unknown_machine_is_none(tmp_path):
    assert available_memory(tmp_path) is None


def test_this_machine_has_available_memory():
    actual = available_memory()
    assert actual is not None
    assert 2**20 < actual.size < 2**50


def test_an_allocation_beyond_the_available_memory_fails_immediately():
    actual, before = available_memory(), resource.getrlimit(resource.RLIMIT_DATA)
    assert actual is not None
    with limit_allocations(), pytest.raises(MemoryError):
        # Not written: Linux would grant it, and kill the process on the first write.
        np.empty(actual.size + GIB, np.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (20_000_000_000, "18.6 GiB"),
        (2**80, "1,048,576.0 EiB"),
    ],
)
def test_sizes_are_formatted_with_units(size, text):
    assert format_size(size) == text
