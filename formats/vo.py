"""Virtual organisations: what a VOMS attribute (FQAN) says, read as the APEL server reads it.

The server takes the part before the first `;`, the group from before `Role=`, the VO from the group's first
component; a text that does not begin with a slash is a VO as it stands (facts on formats, 4.3). SGAS wants the same
parts without the leading slash (facts on formats, 1.3): `sgas_group`. Capabilities are deprecated and ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

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


def sgas_group(fqan: Fqan) -> str | None:
    """The group as SGAS documents it: `atlas/no`, without the leading slash."""
    return fqan.group.lstrip("/") if fqan.group else None
