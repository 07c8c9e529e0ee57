"""Virtual organisations: what a VOMS attribute (FQAN) says, and which VO a run counts under, in every format.

One rule for all formats: a run counts under the VO that its source or the configuration gives, else under that of its
first VOMS attribute (`vo_of`). An FQAN begins with a slash and has a group (`Fqan.group`); any other text in its place
is the bare name of a VO, and is never sent as an FQAN. The APEL server lets the FQAN of a CAR override the VO beside it
(facts on formats, 2.1), so only an FQAN that it reads the same VO from may stand there: `counts_as`.

SGAS wants the parts without the leading slash (facts on formats, 1.3): `sgas_group`. Capabilities are deprecated and
ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from formats.apel_rules import compared
from formats.job import Job


class Fqan(msgspec.Struct, frozen=True):
    """The parts of a VOMS attribute. `group` has its leading slash (`/atlas/no`); `role` is bare (`production`).

    `group` is None where the text is no FQAN but a VO's bare name; `role` is None for `Role=NULL` and where there is
    none.
    """

    vo: str
    group: str | None = None
    role: str | None = None


@lru_cache(maxsize=4096)
def parse_fqan(fqan: str) -> Fqan:
    """The parts of `/atlas/no/Role=production/Capability=NULL`; any text has some (`vo` may come out empty)."""
    text = fqan.split(";", 1)[0].strip()
    if not text.startswith("/"):
        return Fqan(text)
    path: list[str] = []
    role: str | None = None
    for part in text.split("/"):
        if part.startswith("Role="):
            role = part.removeprefix("Role=")
            break
        if part.startswith("Capability="):
            break
        if part:
            path.append(part)
    if not path:
        return Fqan("", None, _role(role))
    return Fqan(path[0], "/" + "/".join(path), _role(role))


def _role(role: str | None) -> str | None:
    return role if role and role.upper() != "NULL" else None


def distinct_fqans(fqans: Iterable[str]) -> tuple[Fqan, ...]:
    """The VOMS attributes parsed, each group and role once, in the order given (ARC tells the primary one twice)."""
    return tuple(dict.fromkeys(parse_fqan(fqan) for fqan in fqans))


def vo_of(job: Job) -> str | None:
    """The VO a run is accounted to: as the source says, else that of its first VOMS attribute."""
    if job.vo:
        return job.vo
    if job.fqans:
        return parse_fqan(job.fqans[0]).vo or None
    return None


def vo_read_by_apel(fqan: str) -> str:
    """The VO that the APEL server takes from an FQAN: its function `parse_fqan`, release 2.5.0.

    The part before the first `;`; of that the part between the first two slashes, or all of it without a leading slash.
    """
    first = fqan.split(";", 1)[0]
    return first.split("/", 2)[1] if first.startswith("/") else first


def counts_as(fqan: str, vo: str | None) -> bool:
    """Whether a text is an FQAN with which the APEL server counts a record under this VO.

    Its database does not tell upper case from lower (facts on formats, 4.8).
    """
    if vo is None or parse_fqan(fqan).group is None:
        return False
    return compared(vo_read_by_apel(fqan)) == compared(vo.strip())


def sgas_group(fqan: Fqan) -> str | None:
    """The group as SGAS documents it: `atlas/no`, without the leading slash."""
    return fqan.group.lstrip("/") if fqan.group else None
