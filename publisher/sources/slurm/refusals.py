"""Why lines of Slurm's accounting are not records, in words for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from publisher.sources.slurm import sacct
from publisher.sources.slurm.table import Layout

WRITTEN_BY: Final = (
    "Write it again, from its first day: sacct --allusers --duplicates --noconvert --parsable2 --starttime=YYYY-MM-DD "
    f"--format={','.join(sacct.COLUMNS)}"
)
NO_HEADER: Final = "there is no header line that names its fields"
NO_FIELDS: Final = "has another number of fields than the header has columns"
CUT_OFF: Final = "is cut off: another record begins after it"
IN_LOG: Final = "it does not begin as a record of a job completion log: it is probably the end of a user's text"
OTHER_HEADER: Final = (
    "looks like a header of other columns, but the lines after it fit the first header: it may be a user's text, and "
    "is not used. Write tables of different columns to different files, and let sacct write State last"
)
BY_OTHER_HEADER: Final = "fits the first header, unlike the lines before it, which came after another header"


def lacking(layout: Layout) -> str:
    """Why a table with this header cannot be used."""
    named = ", ".join(layout.missing)
    return f"the table has no column{'' if len(layout.missing) == 1 else 's'} {named}: no job can be made of it"


def why(layout: Layout | None, lines: Sequence[bytes], reason: str) -> str:
    """Why these lines are not a record: text after the last column is the rest of a text, not a damaged record."""
    if layout is None or not layout.free_last or any(layout.delimiter.encode() in line for line in lines):
        return reason
    return (
        f"is probably the rest of the {layout.free_last} of the job before, after a line feed: in the last column "
        "its end cannot be found. The job was read with the beginning of it; let sacct write State last"
    )
