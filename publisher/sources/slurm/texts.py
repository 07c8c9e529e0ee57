"""A temporary table of the texts that users wrote, for which sacct is asked separately from the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from publisher.errors import SourceError, SourceFormatError
from publisher.sources.slurm.sacct import TEXTS
from publisher.sources.slurm.values import UNKNOWN
from publisher.sqlite_file import TemporaryDatabase

_TABLE: Final = """
CREATE TABLE texts (
    id TEXT, cluster TEXT, account TEXT, name TEXT, comment TEXT, wckey TEXT, submit TEXT, differs INTEGER DEFAULT 0,
    PRIMARY KEY (id, cluster, submit)
) WITHOUT ROWID
"""
_ADD: Final = """
INSERT INTO texts (id, cluster, account, name, comment, wckey, submit) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET differs = 1
WHERE (account, name, comment, wckey) != (excluded.account, excluded.name, excluded.comment, excluded.wckey)
"""
_FIND: Final = (
    "SELECT account, name, comment, wckey FROM texts WHERE id = ? AND cluster = ? AND submit = ? AND NOT differs"
)
_NUMBER: Final = re.compile(r"\d+(?:\.[\w+]+)?", re.ASCII)
_STAMP: Final = re.compile(r"\d[\dT:-]*", re.ASCII)
_OTHER_NUMBER: Final = re.compile(r"[\w+.,:%\[\]-]*", re.ASCII)
"""How Slurm may write a job that has no id of its own yet: `3_[1-5]`, `3_2`, `3+1`, or nothing."""

_AGAIN: Final = "The answer is not used; the next run asks again. If that fails too, run sacct by hand"


class JobTexts(TemporaryDatabase):
    """The temporary table, filled with records of `TEXTS`. Raises `SourceError` if there is no room for it."""

    def __init__(self, records: Iterable[Sequence[str]]) -> None:
        """Read all records. Records without a job id of their own or a time of submission are omitted.

        Raises `SourceFormatError` if these columns contain anything else, since the answer cannot be trusted then, and
        all errors of reading the records.
        """
        super().__init__(_TABLE, "names and comments of sacct", SourceError)
        try:
            self.change(_ADD, (tuple(record) for record in records if _has_ids(record)))
        except BaseException:
            self.close()
            raise

    def of(self, number: str, cluster: str, submit: str) -> tuple[str, ...] | None:
        """The texts of a job, in the order of `FREE_TEXT`; None: the answer did not have the job, or had different
        texts for it.
        """
        return self.row(_FIND, number, cluster, submit)


def _has_ids(record: Sequence[str]) -> bool:
    """Whether a record has a job id and a time of submission.

    Raises `SourceFormatError` if it has neither these nor what Slurm writes in their place: a text may have shifted the
    columns.
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
