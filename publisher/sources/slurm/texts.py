"""A temporary table of what users wrote about their jobs: what sacct answers apart from the numbers.

It is a file without a name in the directory for temporary files (`TMPDIR`), private to this process and gone with it,
so that memory does not grow with the answer. A million jobs take some 100 MiB there.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Final, Self

from publisher.errors import SourceError, SourceFormatError
from publisher.sources.slurm.sacct import TEXTS
from publisher.sources.slurm.values import UNKNOWN

_TABLE: Final = """
PRAGMA cache_size = -8192; PRAGMA journal_mode = OFF;
CREATE TABLE texts (
    id TEXT, cluster TEXT, account TEXT, name TEXT, comment TEXT, wckey TEXT, submit TEXT, differs INTEGER DEFAULT 0,
    PRIMARY KEY (id, cluster, submit)
) WITHOUT ROWID;
BEGIN;
"""
_ADD: Final = """
INSERT INTO texts (id, cluster, account, name, comment, wckey, submit) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET differs = 1
WHERE (account, name, comment, wckey) != (excluded.account, excluded.name, excluded.comment, excluded.wckey)
"""
_FIND: Final = (
    "SELECT account, name, comment, wckey FROM texts WHERE id = ? AND cluster = ? AND submit = ? AND NOT differs"
)
_AT_ONCE: Final = 1_000
_NUMBER: Final = re.compile(r"\d+(?:\.[\w+]+)?", re.ASCII)
_STAMP: Final = re.compile(r"\d[\dT:-]*", re.ASCII)
_OTHER_NUMBER: Final = re.compile(r"[\w+.,:%\[\]-]*", re.ASCII)
"""How Slurm may write a job that has no id of its own yet: `3_[1-5]`, `3_2`, `3+1`, nothing."""

_AGAIN: Final = "The answer is not used; sacct is asked again at the next run. If that fails too, run it by hand"


class Texts:
    """The temporary table, filled with records of `TEXTS`. Close it, or use it in a `with` statement."""

    def __init__(self, records: Iterable[Sequence[str]]) -> None:
        """Read all records. One without a job id of its own or a time of submission is left out.

        Raises `SourceFormatError` where something else is in the place of these ids: the answer cannot be believed.
        Raises `SourceError` where there is no room, and what reading the records raises.
        """
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        try:
            with _room():
                self._connection.executescript(_TABLE)
            rows = iter(records)
            while page := list(islice(rows, _AT_ONCE)):
                kept = [record for record in page if _has_ids(record)]
                with _room():
                    self._connection.executemany(_ADD, kept)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Forget everything."""
        self._connection.close()

    def of(self, number: str, cluster: str, submit: str) -> tuple[str, ...] | None:
        """What the user wrote about a job, in the order of `FREE_TEXT`.

        None where the answer did not have the job, or had different texts for it.
        """
        with _room():
            found: tuple[str, ...] | None = self._connection.execute(_FIND, (number, cluster, submit)).fetchone()
        return found


def _has_ids(record: Sequence[str]) -> bool:
    """Whether a record has a job id and a time of submission.

    Raises `SourceFormatError` where neither these nor what Slurm writes in their place is there: the text of a user may
    have shifted the columns.
    """
    number, submit = record[0], record[-1]
    stamped = _STAMP.fullmatch(submit) is not None
    if stamped and _NUMBER.fullmatch(number):
        return True
    if (stamped or submit in UNKNOWN) and _OTHER_NUMBER.fullmatch(number):
        return False
    raise SourceFormatError(
        f"sacct printed a record of {', '.join(TEXTS)} without a job id and a time of submission", hint=_AGAIN
    )


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise SourceError(
            f"the temporary file for names and comments of sacct cannot be written: {error}",
            hint="Make room in the directory for temporary files, or set TMPDIR to one that has room",
        ) from error
