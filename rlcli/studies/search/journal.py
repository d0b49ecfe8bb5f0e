"""Journal: the trials of a sweep in a file, as a storage backend of Optuna.

The file has the format of Optuna's `JournalFileBackend`, a line of JSON for each
change, so Optuna's other tools read it. This backend opens only a regular file, follows
no link, and checks every line. It needs no lock: one process at a time drives a sweep.
"""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote
from rlcli.runs import predicates
from rlcli.runs.files import (
    exists,
    name_file_in_errors,
    open_regular,
    parse_json,
    read_lines,
    to_json,
)

Entry = Mapping[str, Any]
REMEDY = "restore the file from a copy; without it `--resume` starts all trials again"


class Journal:
    """The lines of a file; `is_reader`: what is appended stays in memory."""

    def __init__(self, path: Path, *, is_reader: bool = False) -> None:
        self.path = path
        self.line = 0  # the number of the line that was read last
        self._offset = 0  # of the next line
        self._is_reader = is_reader
        self._appended: list[Entry] = []  # by a reader
        if is_reader and not exists(path):
            message = f"`{path}` is missing: it stores the trials"
            raise RlcliError(message, REMEDY)
        if not is_reader:
            self._open(os.O_RDWR | os.O_CREAT, "r+b").close()
            self._remove_half_line()

    def read_logs(self, log_number_from: int) -> Iterator[Entry]:
        """The entries from a number on, as `JournalStorage` asks for them."""
        if log_number_from < self.line:
            self.line = self._offset = 0
        if not self._appended:  # a reader does not mix them with newer lines
            yield from itertools.islice(self._read(), log_number_from - self.line, None)
        yield from self._appended[max(0, log_number_from - self.line) :]

    def append_logs(self, logs: Sequence[Entry]) -> None:
        """Appends entries, and waits until the disk has them."""
        if self._is_reader:
            self._appended += logs
            return
        lines = [json.dumps(each, separators=(",", ":")) for each in logs]
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with name_file_in_errors(self.path, "written"), self._open(flags, "ab") as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())

    def _open(self, flags: int, mode: str) -> Any:
        return open_regular(self.path, flags, mode)

    def _read(self) -> Iterator[Entry]:
        with self._open(os.O_RDONLY, "rb") as file:
            file.seek(self._offset)
            lines = read_lines(file, self.path, REMEDY, first=self.line + 1)
            for number, line in lines:
                self.line, self._offset = number, file.tell()
                yield self._parse(line)

    def _parse(self, line: bytes) -> Entry:
        try:
            entry = parse_json(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise self.damage(str(error)[:100]) from error
        if not isinstance(entry, dict):
            raise self.damage("it is not a JSON object")
        operation = entry.get("op_code")
        fields = _FIELDS.get(operation) if type(operation) is int else None
        if fields is None:
            raise self.damage(f"there is no operation {quote(to_json(operation))}")
        for name, is_sound in {"worker_id": predicates.is_text, **fields}.items():
            if not is_sound(entry.get(name)):
                value = quote(to_json(entry.get(name)))
                raise self.damage(f"`{name}` is {value}")
        return entry

    def damage(self, reason: str) -> RlcliError:
        """The error that the line which was read last is damaged."""
        message = f"`{self.path}` is damaged: line {self.line}: {reason}"
        return RlcliError(message, REMEDY)

    def _remove_half_line(self) -> None:
        """Removes what a killed process leaves."""
        with self._open(os.O_RDWR, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            begin = max(0, end - _LONGEST)
            file.seek(begin)
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            if whole < len(tail) and (whole or not begin):
                file.truncate(begin + whole)
                os.fsync(file.fileno())


_LONGEST = 2**20  # bytes of a half line


def _is_pair(value: Any) -> bool:
    """Whether a value is a mapping with a single item."""
    return isinstance(value, dict) and len(value) == 1


def _each(is_sound: predicates.Predicate) -> predicates.Predicate:
    """Whether a list, or the values of a mapping, are sound; also without any."""

    def check(value: Any) -> bool:
        values = [*value.values()] if isinstance(value, dict) else value
        return predicates.or_none(predicates.list_of(is_sound))(values)

    return check


_TRIAL = {"trial_id": predicates.is_int}
# By the numbers of Optuna's `JournalOperation`.
_FIELDS: Mapping[int, Mapping[str, predicates.Predicate]] = {
    0: {"study_name": predicates.is_text, "directions": _each(predicates.is_int)},
    1: {"study_id": predicates.is_int},
    2: {"study_id": predicates.is_int, "user_attr": _is_pair},
    3: {"study_id": predicates.is_int, "system_attr": _is_pair},
    4: {
        "study_id": predicates.is_int,
        "datetime_start": predicates.or_none(predicates.is_text),
        "state": predicates.or_none(predicates.is_int),
        "value": predicates.or_none(predicates.is_number),
        "values": _each(predicates.is_number),
        "distributions": _each(predicates.is_text),
        "params": _each(predicates.is_number),
        "user_attrs": _each(lambda value: True),
        "system_attrs": _each(lambda value: True),
        "intermediate_values": _each(predicates.is_number),
    },
    5: {
        **_TRIAL,
        "param_name": predicates.is_text,
        "param_value_internal": predicates.is_number,
        "distribution": predicates.is_text,
    },
    6: {**_TRIAL, "state": predicates.is_int, "values": _each(predicates.is_number)},
    7: {
        **_TRIAL,
        "step": predicates.is_int,
        "intermediate_value": predicates.is_number,
    },
    8: {**_TRIAL, "user_attr": _is_pair},
    9: {**_TRIAL, "system_attr": _is_pair},
}
