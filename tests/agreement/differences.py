"""Where our records differ from those of ARC 6.17's publisher, and why.

The tests compare with this list. `defects` are numbers of the table of defects of ARC's publisher in the facts on
formats, 5.1. A difference without one is a value that ARC omits or that names the publishing program; `reason` then
says where it comes from. `records` is the exact number of the sample's records that differ. `value` is what ours must
be, from ARC's record and from ARC's database. `switch` is the setting of a target that removes the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.agreement.facts import Facts
from tests.agreement.fields import Fields

CREATED = 1_795_230_000
"""When the runs were first stored, for these tests."""

Values = tuple[object, ...] | None


class ArcDifference(msgspec.Struct, frozen=True):
    """One field that differs."""

    field: str
    records: int
    value: Callable[[Fields, Facts], Values]
    reason: str
    defects: tuple[int, ...] = ()
    switch: str = ""


def utc(epoch_s: int) -> str:
    """An instant as both publishers write it."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _none(_arc: Fields, _facts: Facts) -> Values:
    return None


def _as_arc(field: str) -> Callable[[Fields, Facts], Values]:
    return lambda arc, _facts: arc.get(field)


def _event(key: str) -> Callable[[Fields, Facts], Values]:
    return lambda _arc, facts: (utc(facts.events[key]),)


def _between(first: str, last: str) -> Callable[[Fields, Facts], Values]:
    return lambda _arc, facts: (facts.events[last] - facts.events[first],)


def _submit(_arc: Fields, facts: Facts) -> Values:
    return (utc(facts.submit),)


def _benchmark(_arc: Fields, facts: Facts) -> Values:
    return (float(facts.info["benchmark"].removeprefix("HEPSPEC:")),)


def _created(_arc: Fields, _facts: Facts) -> Values:
    return (utc(CREATED),)


def _not_zero(field: str) -> Callable[[Fields, Facts], Values]:
    return lambda arc, _facts: None if arc.get(field) == ("0",) else arc.get(field)


def _group_and_role(fqan: str) -> tuple[str, str]:
    group, _, role = fqan.partition("/Role=")
    return group, role


def _vo_attributes(_arc: Fields, facts: Facts) -> Values:
    pairs = dict.fromkeys(_group_and_role(fqan) for fqan in facts.fqans)
    attributes: list[Any] = []
    for group, role in pairs:
        parts = {("Group", group.lstrip("/")), ("Role", role)} if role else {("Group", group.lstrip("/"))}
        attributes.append(frozenset(parts))
    return tuple(attributes) or None


def _group(_arc: Fields, facts: Facts) -> Values:
    return (_group_and_role(facts.fqans[0])[0],) if facts.fqans else None


def _role(_arc: Fields, facts: Facts) -> Values:
    role = _group_and_role(facts.fqans[0])[1] if facts.fqans else ""
    return (f"Role={role}",) if role else None


def _interface_and_url(_arc: Fields, facts: Facts) -> Values:
    interface = facts.interface.removeprefix("org.nordugrid.")
    return (f"{interface}:{facts.url}" if interface in {"arcrest", "internal"} else facts.url,)


def _primary_last(arc: Fields, _facts: Facts) -> Values:
    hosts = arc.get("Host")
    return None if hosts is None else (*hosts[1:], hosts[0])


def _project(_arc: Fields, facts: Facts) -> Values:
    return (facts.info["projectname"],) if "projectname" in facts.info else None


_ALL = 193
_VO = "UserIdentity/VO[voms]/Attribute"
_GROUPS = "UserIdentity/GroupAttribute"

UR = (
    ArcDifference("RecordIdentity@createTime", _ALL, _created, "today's date is no time of creation", (9,)),
    ArcDifference("Memory[max,KB,virtual]", _ALL, _none, "UR and SGAS know no type `virtual`", (6,)),
    ArcDifference(
        "Memory[max,KB,shared]", _ALL, _as_arc("Memory[max,KB,virtual]"), "the type that they know for it", (6,)
    ),
    ArcDifference("Network[B]", 53, _not_zero("Network[B]"), "zero is no positiveInteger", (6,)),
    ArcDifference(_VO, 183, _vo_attributes, "group and role without their prefixes, each once", (4,)),
    ArcDifference("SubmitTime", _ALL, _submit, "ARC has it only as StartTime; SGAS' extension is for it", (7,)),
    ArcDifference("TimeInstant[submit]", _ALL, _submit, "the standard's own place for it", (7,)),
    ArcDifference("TimeInstant[queued]", _ALL, _event("SUBMIT"), "left out by ARC, though its database has it", (7,)),
    ArcDifference("TimeInstant[executionStart]", _ALL, _event("LRMSSTART"), "never queried by ARC", (7,)),
    ArcDifference("TimeInstant[executionEnd]", _ALL, _event("LRMSEND"), "never queried by ARC", (8,)),
    ArcDifference(
        "TimeDuration[stageIn]", _ALL, _between("PREPARING", "SUBMIT"), "added: what EndTime - StartTime hides", (8,)
    ),
    ArcDifference("TimeDuration[stageOut]", _ALL, _between("FINISHING", "FINISHED"), "added: likewise", (8,)),
    ArcDifference(
        "ExitCode", _ALL, lambda _, facts: (str(facts.exit_code),), "added: SGAS' extension, facts on formats, 1.3"
    ),
    ArcDifference("UserTime", _ALL, lambda _, facts: (facts.user_s,), "added: SGAS' extension, facts on formats, 1.3"),
    ArcDifference(
        "KernelTime", _ALL, lambda _, facts: (facts.kernel_s,), "added: SGAS' extension, facts on formats, 1.3"
    ),
    ArcDifference("Host", 11, _primary_last, "reordered: SGAS keeps the last host, facts on formats, 1.4"),
    ArcDifference("ServiceLevel[HEPSPEC]", _ALL, _benchmark, "added: the benchmark, facts on formats, 6"),
    ArcDifference(
        "ServiceLevel",
        71,
        _none,
        "wninstance is no benchmark; SGAS ignores it",
        switch="service_class_as_service_level",
    ),
)
"""Of OGF-UR."""

CAR = (
    ArcDifference("RecordIdentity@createTime", _ALL, _created, "today's date is no time of creation", (9,)),
    ArcDifference("SubmitHost@type", _ALL, _none, "the schema has no attribute there", (14,)),
    ArcDifference("SubmitHost", 159, _interface_and_url, "as in summaries and sync counts", (14, 15), "submit_host"),
    ArcDifference(f"{_GROUPS}[vo-group]", 122, _group, "the group ends before `/Role=`", (17, 19)),
    ArcDifference(f"{_GROUPS}[vo-role]", 122, _role, "ARC takes the role's word into the group", (17, 19)),
    ArcDifference(f"{_GROUPS}[group]", 183, _group, "the type that APEL's server reads", (17,)),
    ArcDifference(f"{_GROUPS}[role]", 122, _role, "the type that APEL's server reads", (17,)),
    ArcDifference(
        f"{_GROUPS}[FQAN]", 164, lambda _, facts: facts.fqans or None, "added: the others; the server takes the first"
    ),
    ArcDifference(f"{_GROUPS}[ProjectName]", 4, _project, "added: ARC leaves the project of a job without a VO out"),
    ArcDifference("TimeInstant[Ctime]", _ALL, _submit, "ARC has it only as StartTime", (7,)),
    ArcDifference("TimeInstant[Qtime]", _ALL, _event("SUBMIT"), "left out by ARC, though its database has it", (7,)),
    ArcDifference(
        "Infrastructure@description", _ALL, lambda *_: ("USAGE-PUBLISHER-ARC-SLURM",),
        "begins with the accounting client, facts on formats, 2: JURA is another", switch="infrastructure_description",
    ),
    ArcDifference(
        "Middleware@version", _ALL, _none, "ARC writes its publisher's own; its database has none of the job",
    ),
    ArcDifference("Middleware@description", _ALL, _none, "likewise"),
)  # fmt: skip
"""Of EMI CAR."""
