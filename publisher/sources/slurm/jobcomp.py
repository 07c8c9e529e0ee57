"""Records of Slurm's job completion log (jobcomp/filetxt): `Key=value` in a fixed order, without quotes.

A name and a folder may contain blanks, equal signs, and line feeds, so they are found by the keys around them. A run
that was requeued has JobState=PENDING. The log has neither CPU time nor memory. (The facts on sources, 6.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from publisher.sources.fields import LineError
from publisher.sources.slurm.table import Layout

_COLUMNS: Final = (
    "JobIDRaw", "JobID", "User", "UID", "Group", "GID", "JobName", "State", "Partition", "Start", "End", "NodeList",
    "NNodes", "NCPUS", "Reservation", "AllocTRES", "AllocGRES", "Account", "QOS", "WCKey", "Cluster", "Submit",
    "Eligible", "DerivedExitCode", "ExitCode",
)  # fmt: skip
LAYOUT: Final = Layout(_COLUMNS, "\x1f")

_TAIL: Final = (
    "ReservationName", "Gres", "Tres", "Account", "QOS", "WcKey", "Cluster", "SubmitTime", "EligibleTime", "ArrayJobId",
    "ArrayTaskId", "HetJobId", "HetJobOffset", "PackJobId", "PackJobOffset", "DerivedExitCode", "ExitCode",
)  # fmt: skip
_BEGIN: Final = re.compile(rb"JobId=\d{1,12} UserId=")
_AGAIN: Final = re.compile(r"JobId=\d{1,12} UserId=", re.ASCII)
_STATE: Final = re.compile(r" JobState=[A-Z_]+ Partition=\S* TimeLimit=\S+ StartTime=", re.ASCII)
_RECORD: Final = re.compile(
    r"JobId=(?P<id>\d{1,12}) UserId=(?P<user>[^\s(]*)\((?P<uid>\d+)\) GroupId=(?P<group>[^\s(]*)\((?P<gid>\d+)\) "
    r"Name=(?P<name>.*) JobState=(?P<state>[A-Z_]+) Partition=(?P<partition>\S*) TimeLimit=\S+ "
    r"StartTime=(?P<start>\S+) EndTime=(?P<end>\S+) NodeList=(?P<nodes>\S*) NodeCnt=(?P<count>\d+) "
    r"ProcCnt=(?P<cpus>\d+) WorkDir=",
    re.ASCII | re.DOTALL,
)
_END: Final = re.compile(rb" ExitCode=\d+:\d+ ?\Z")
_PAIRS: Final = re.compile(rf"(?: (?:{'|'.join(_TAIL)})=\S*)+ ?\Z", re.ASCII)
_PAIR: Final = re.compile(r" (\w+)=(\S*)", re.ASCII)


class TextError(LineError):
    """A user's text in the record looks like a part of a record, so the record's end may be such a part too."""


def begins(raw: bytes) -> bool:
    """Whether a record begins with this line."""
    return _BEGIN.match(raw) is not None


def is_in_text(lines: Sequence[bytes]) -> bool:
    """Whether the beginning of a record includes a text of a user, the name."""
    return b" Name=" in lines[0]


def ends(raw: bytes, *, modern: bool) -> bool:
    """Whether a record ends with this line: with the exit code, or with the blank that older versions write.

    `modern`: the version that wrote the log writes the exit code, so a blank at the end belongs to the name of the
    folder.
    """
    return _END.search(raw) is not None or (
        not modern and raw.endswith(b" ") and b" WorkDir=" in raw and b" Account=" not in raw
    )


def fields(text: str) -> list[str]:
    """The fields of a record, in the order of `LAYOUT`. Raises `LineError`."""
    if again := _AGAIN.search(text, 6):
        raise (TextError if " Name=" in text[: again.start()] else LineError)(
            "a part of a record, followed by another record in the same line"
        )
    if len(_STATE.findall(text)) != 1:
        raise TextError("the record does not have JobState and the keys after it exactly once")
    match = _RECORD.match(text)
    if match is None:
        raise TextError("this is not the form that Slurm's jobcomp/filetxt writes")
    if match["state"] == "RESIZING" and match["start"] == match["end"]:
        raise LineError(
            "the job was resized, and the log has no start of the part before that: read this job from sacct"
        )
    tail = _PAIRS.search(text, match.end())
    pairs = dict(_PAIR.findall(tail[0])) if tail else {}
    if "ExitCode" in pairs and "SubmitTime" not in pairs:
        raise TextError("the name of the folder contains text that looks like the end of a record")
    number = match["id"]
    array, het = pairs.get("ArrayJobId"), pairs.get("HetJobId") or pairs.get("PackJobId")
    shown = number
    if array and "ArrayTaskId" in pairs:
        shown = f"{array}_{pairs['ArrayTaskId']}"
    elif het:
        shown = f"{het}+{pairs.get('HetJobOffset') or pairs.get('PackJobOffset') or 0}"
    return [
        number, shown, match["user"], match["uid"], match["group"], match["gid"], match["name"], match["state"],
        match["partition"], match["start"], match["end"], match["nodes"], match["count"], match["cpus"],
        pairs.get("ReservationName", ""), pairs.get("Tres", ""), pairs.get("Gres", ""), pairs.get("Account", ""),
        pairs.get("QOS", ""), pairs.get("WcKey", ""), pairs.get("Cluster", ""), pairs.get("SubmitTime", ""),
        pairs.get("EligibleTime", ""), pairs.get("DerivedExitCode", ""), pairs.get("ExitCode", ""),
    ]  # fmt: skip
