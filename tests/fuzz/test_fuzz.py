"""Fuzzing: random input is a success or one clear error; `make fuzz` tries more."""

import collections

import fuzz_targets
import pytest
from fuzz_guard import Guard

SEED, CASES = 0, 150


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return fuzz_targets.Place(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def guard(place):
    return Guard(place.folder)


def test_random_input_is_a_success_or_one_clear_error(place, guard):
    outcomes = collections.Counter()
    with guard.limits():
        for index, (kind, draw) in enumerate(fuzz_targets.cases(SEED, CASES), SEED):
            target = fuzz_targets.TARGETS[kind]
            case = target.make(draw, place)
            try:
                outcomes[guard.run(case, is_data=target.is_data)] += 1
            except AssertionError as error:
                raise AssertionError(f"case {index}, {kind}: {error}") from error
    assert outcomes[True] > 15 and outcomes[False] > 30


@pytest.mark.parametrize("name", sorted(fuzz_targets.bad_parts()))
def test_a_part_that_cannot_be_used_is_one_clear_error(name, guard):
    case = fuzz_targets.use_part("updater", f"fuzz_parts:{name}", {})
    assert guard.run(case, is_data=False) is False


def test_a_case_depends_on_its_number_only():
    first, second = (
        [(kind, draw.random()) for kind, draw in fuzz_targets.cases(5, 4)],
        [(kind, draw.random()) for kind, draw in fuzz_targets.cases(7, 2)],
    )
    assert first[2:] == second
