"""Fold runs into monthly summaries, in any order and in any parts.

So that summaries replace the earlier ones and nothing counts twice, runs are grouped by the primary key of the
*receiver's* table, compared as its database compares (facts on formats, 4.8): without case and trailing blanks, a
benchmark score with three decimals. Two groups with one key would replace each other there. Sums are exact integers,
and are rounded once, when a message is written.

Fold runs into sync counts, in the same way: the number of runs that a site must deliver for a month and submit host
(facts on formats, 4.6 and 4.8).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from formats.apel import values
from formats.apel.text import NULL
from formats.base import Note
from formats.benchmark import normalising_factor, require_benchmark
from formats.calendar import SECONDS_A_DAY, Month, MonthKey, month_bounds, month_of
from formats.hosts import infrastructure_of
from formats.identity import DIGEST_BYTES
from formats.job import Job
from formats.rules import JOB_NUMBERS, SUMMARY_NUMBERS, compared
from formats.totals import LATEST_END, LONGEST_MS, Sums
from formats.view import View

__all__ = ["Fold", "Group", "GroupKey", "Month", "Sums", "month_bounds", "month_of"]

NORMALISED_UNITS: Final = 10**9
"""The unit of normalised durations: 1e-9 of a second times the score (ms x score in thousandths x 1000), which is
exact."""

# Where each run has facts of its own, the cache would otherwise have all runs of the month.
_CACHED_IDENTITIES: Final = 200_000


class GroupKey(MonthKey, frozen=True, order=True):
    """The primary key of a summary at the receiver.

    `score_milli`: the benchmark's score in thousandths. In normalised summaries the score is not part of the key, and
    is 0 here; in version 0.3 the benchmark is not part of it either.
    """

    user: str
    vo: str
    vo_group: str
    vo_role: str
    submit_host: str
    infrastructure: str
    benchmark: str
    score_milli: int
    nodes: int
    processors: int

    def folded(self) -> GroupKey:
        """The key as the receiver's database compares it."""
        return GroupKey(
            compared(self.site), self.year, self.month, compared(self.user), compared(self.vo), compared(self.vo_group),
            compared(self.vo_role), compared(self.submit_host), compared(self.infrastructure), compared(self.benchmark),
            self.score_milli, self.nodes, self.processors,
        )  # fmt: skip


class Group(msgspec.Struct, frozen=True):
    """A summary: its key as compared, its key as sent (`spelling`), and exact sums.

    `spelling` is the first, in sort order, of the spellings of its runs, so it does not depend on their order. Ends are
    epoch seconds, None in a group without runs; `normalised_*` are in `NORMALISED_UNITS`.
    """

    key: GroupKey
    spelling: GroupKey
    jobs: int = 0
    wall_ms: int = 0
    cpu_ms: int = 0
    earliest: int | None = None
    latest: int | None = None
    normalised_wall: int = 0
    normalised_cpu: int = 0
    notes: tuple[Note, ...] = ()

    @property
    def digest(self) -> bytes:
        """Digest (16 bytes) of everything that is sent: spelling and sums, not the notes."""
        content = (
            self.spelling, self.jobs, self.wall_ms, self.cpu_ms, self.earliest, self.latest, str(self.normalised_wall),
            str(self.normalised_cpu),
        )  # fmt: skip
        return hashlib.blake2b(msgspec.json.encode(content), digest_size=DIGEST_BYTES).digest()

    @property
    def zeroed(self) -> Group:
        """The same group without runs. It is sent to replace a group that no longer exists."""
        return Group(self.key, self.spelling)

    def plus(self, other: Group) -> Group:
        """The sum of both groups; their keys must be equal."""
        return Group(
            self.key,
            min(self.spelling, other.spelling),
            self.jobs + other.jobs,
            self.wall_ms + other.wall_ms,
            self.cpu_ms + other.cpu_ms,
            _least(self.earliest, other.earliest),
            _greatest(self.latest, other.latest),
            self.normalised_wall + other.normalised_wall,
            self.normalised_cpu + other.normalised_cpu,
            tuple(sorted({*self.notes, *other.notes}, key=_note_order)),
        )

    def to_json(self) -> bytes:
        """The group for the store."""
        return _group_encoder.encode(self)

    @staticmethod
    def from_json(stored: bytes) -> Group:
        """The group of its stored form. Raises `msgspec.DecodeError` or `msgspec.ValidationError`."""
        return _group_decoder.decode(stored)


_group_encoder = msgspec.json.Encoder()
_group_decoder = msgspec.json.Decoder(Group)


class _GroupSums:
    """The sums of one group so far; `groups` makes a `Group` of them."""

    __slots__ = ("cpu_ms", "earliest", "jobs", "key", "latest", "n_cpu", "n_wall", "notes", "spelling", "wall_ms")

    def __init__(self, key: GroupKey, spelling: GroupKey, end: int) -> None:
        self.key = key
        self.spelling = spelling
        self.jobs = self.wall_ms = self.cpu_ms = self.n_wall = self.n_cpu = 0
        self.earliest = self.latest = end
        self.notes: set[Note] = set()

    def group(self) -> Group:
        return Group(
            self.key, self.spelling, self.jobs, self.wall_ms, self.cpu_ms, self.earliest, self.latest, self.n_wall,
            self.n_cpu, tuple(sorted(self.notes, key=_note_order)),
        )  # fmt: skip


class Fold:
    """The summaries of one receiver, as runs are added. `normalised`: for `apel-normalised-summary`, whose key has no
    score."""

    def __init__(self, view: View, *, normalised: bool = False) -> None:
        self._view = view
        self._normalised = normalised
        self._typeless = normalised and view.version.removeprefix("v") == "0.3"
        self._sums: dict[GroupKey, _GroupSums] = {}
        self._stored: dict[GroupKey, Group] = {}
        self._known: dict[tuple[object, ...], tuple[_GroupSums, int]] = {}
        self._months: dict[int, int] = {}

    def add(self, job: Job) -> GroupKey:
        """Add a run; return the key of its group.

        Raises `CannotRenderError`, and adds nothing, for a run that has not ended or lacks a value that APEL requires:
        end, wall and CPU time, benchmark, site. The caller holds such a run.
        """
        end, wall_ms, cpu_ms = job.end, job.wall_ms, job.cpu_ms
        if (
            end is None or wall_ms is None or cpu_ms is None
            or not (0 <= end <= LATEST_END and 0 <= wall_ms <= LONGEST_MS and 0 <= cpu_ms <= LONGEST_MS)
        ):  # fmt: skip
            end, wall_ms, cpu_ms = _amounts(job)
        return self._count(job, 1, wall_ms, cpu_ms, end, end)

    def add_alike(self, facts: Job, sums: Sums) -> GroupKey:
        """Add runs with the same values of everything that determines a group, including the month of their end; return
        its key.

        `facts` are these values. Raises `CannotRenderError`, and adds nothing, if `add` would for each of them. Their
        ends and amounts must be usable: 0 to `LATEST_END`, 0 to `LONGEST_MS`.
        """
        return self._count(facts, sums.jobs, sums.wall_ms, sums.cpu_ms, sums.earliest, sums.latest)

    def _count(self, job: Job, jobs: int, wall_ms: int, cpu_ms: int, earliest: int, latest: int) -> GroupKey:
        month = self._months.get(earliest // SECONDS_A_DAY) or self._month(earliest)
        benchmarks = job.benchmarks
        identity = (
            month, job.status, job.user_dn, job.fqans, job.vo, job.local_group, job.endpoint_url, job.endpoint_type,
            job.cluster, job.infrastructure, job.site, job.token_subject, job.nodes, job.cores or job.slots,
            benchmarks if len(benchmarks) != 1 else (benchmarks[0].type, benchmarks[0].value),
        )  # fmt: skip
        known = self._known.get(identity)
        if known is None:
            known = self._learn(identity, job, earliest)
        sums, factor = known
        sums.jobs += jobs
        sums.wall_ms += wall_ms
        sums.cpu_ms += cpu_ms
        sums.n_wall += wall_ms * factor
        sums.n_cpu += cpu_ms * factor
        sums.earliest = min(sums.earliest, earliest)
        sums.latest = max(sums.latest, latest)
        return sums.key

    def merge(self, other: Fold) -> None:
        """Add everything in another fold of the same view."""
        for group in other.groups():
            self.merge_group(group)

    def merge_group(self, group: Group) -> None:
        """Add a group, e.g. one from the store."""
        held = self._stored.get(group.key)
        self._stored[group.key] = group if held is None else held.plus(group)

    def groups(self) -> Iterator[Group]:
        """All groups, in the order of their keys."""
        for key in sorted({*self._sums, *self._stored}):
            sums, stored = self._sums.get(key), self._stored.get(key)
            if sums is None:
                assert stored is not None
                yield stored
            else:
                yield sums.group() if stored is None else stored.plus(sums.group())

    def __len__(self) -> int:
        return len({*self._sums, *self._stored})

    def _month(self, end: int) -> int:
        number = self._months[end // SECONDS_A_DAY] = month_of(end).number
        return number

    def _learn(self, identity: tuple[object, ...], job: Job, end: int) -> tuple[_GroupSums, int]:
        notes: list[Note] = []
        spelling, factor = self._spelling(job, end, notes)
        key = spelling.folded()
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = _GroupSums(key, spelling, end)
        elif spelling < sums.spelling:
            sums.spelling = spelling
        sums.notes.update(notes)
        if len(self._known) >= _CACHED_IDENTITIES:
            self._known.clear()
        self._known[identity] = sums, factor
        return sums, factor

    def _spelling(self, job: Job, end: int, notes: list[Note]) -> tuple[GroupKey, int]:
        """The key of a run as it would be sent, and one millisecond of the run in `NORMALISED_UNITS`."""
        values.finished(job)
        benchmark = require_benchmark(job, self._view, notes)
        # The server's column has three decimals: two groups that differ in the fourth would be one there, and the
        # second would replace the first.
        milli = round(benchmark.value * 1000)
        spelling = msgspec.structs.replace(
            group_without_score(job, month_of(end), self._view, notes),
            benchmark=NULL if self._typeless else benchmark.type,
            score_milli=0 if self._normalised else milli,
        )
        return spelling, milli * normalising_factor(benchmark.type)


def group_without_score(job: Job, month: Month, view: View, notes: list[Note]) -> GroupKey:
    """The key of the groups of runs with these facts that end in a month, without the benchmark.

    Raises `CannotRenderError` for facts without a usable site or submit host.
    """
    vo, vo_group, vo_role = values.vo_fields(job, view, notes)
    return GroupKey(
        site=values.required("Site", job.site or view.site, notes),
        year=month.year,
        month=month.month,
        user=values.user_name(job, view, notes),
        vo=vo,
        vo_group=vo_group,
        vo_role=vo_role,
        submit_host=values.submit_host(job, view, notes),
        infrastructure=infrastructure_of(job),
        benchmark=NULL,
        score_milli=0,
        nodes=values.node_count(job, notes) if view.summary_counts == "nodes-and-cores" else 0,
        processors=values.processors(job, notes) if view.summary_counts != "none" else 0,
    )


def normalised_seconds(units: int) -> int:
    """Whole seconds of a normalised sum, rounded half up, like the server's ROUND."""
    return (units + NORMALISED_UNITS // 2) // NORMALISED_UNITS


def _amounts(job: Job) -> tuple[int, int, int]:
    """End, wall and CPU time of a run, each checked; raises `CannotRenderError` for a value that is not usable."""
    end = values.needed(SUMMARY_NUMBERS["LatestEndTime"], job.end)
    amounts = []
    for field, amount_ms in (("WallDuration", job.wall_ms), ("CpuDuration", values.cpu_ms(job))):
        values.seconds(field, amount_ms, job.system)
        assert amount_ms is not None
        amounts.append(amount_ms)
    return end, amounts[0], amounts[1]


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _greatest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _note_order(note: Note) -> tuple[str, str, str, str]:
    return note.field, note.before, note.after or "", note.rule


class SyncKey(MonthKey, frozen=True, order=True):
    """The primary key of a sync count at the receiver."""

    submit_host: str

    def folded(self) -> SyncKey:
        """The key as the receiver's database compares it."""
        return SyncKey(compared(self.site), self.year, self.month, compared(self.submit_host))


class SyncCount(msgspec.Struct, frozen=True):
    """The number of runs due for a month and submit host. `key` as compared, `spelling` as sent."""

    key: SyncKey
    spelling: SyncKey
    jobs: int = 0

    @property
    def digest(self) -> bytes:
        """Digest (16 bytes) of everything that is sent."""
        return hashlib.blake2b(msgspec.json.encode((self.spelling, self.jobs)), digest_size=DIGEST_BYTES).digest()

    @property
    def latest(self) -> None:
        """Not known."""
        return

    @property
    def zeroed(self) -> SyncCount:
        """The same count, of 0 runs."""
        return SyncCount(self.key, self.spelling)

    def plus(self, other: SyncCount) -> SyncCount:
        """The sum of both counts; their keys must be equal."""
        return SyncCount(self.key, min(self.spelling, other.spelling), self.jobs + other.jobs)

    def to_json(self) -> bytes:
        """The count for the store."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_json(stored: bytes) -> SyncCount:
        """The count of its stored form. Raises `msgspec.DecodeError` or `msgspec.ValidationError`."""
        return _sync_decoder.decode(stored)


_sync_decoder = msgspec.json.Decoder(SyncCount)


class SyncFold:
    """The sync counts of one receiver, as runs are added, by month and submit host (facts on formats, 4.6)."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._counts: dict[SyncKey, SyncCount] = {}

    def add(self, job: Job) -> SyncKey:
        """Count a run, held or not. Raises `CannotRenderError` for a run without a usable end, site, or submit host."""
        return self._count(job, 1)

    def add_alike(self, facts: Job, sums: Sums) -> SyncKey:
        """Count as many runs with this site and submit host, and ends in the same month. Raises as `add`."""
        return self._count(facts, sums.jobs)

    def _count(self, job: Job, jobs: int) -> SyncKey:
        values.finished(job)
        notes: list[Note] = []
        month = month_of(values.needed(JOB_NUMBERS["EndTime"], job.end))
        site = values.required("Site", job.site or self._view.site, notes)
        spelling = SyncKey(site, month.year, month.month, values.submit_host(job, self._view, notes))
        key = spelling.folded()
        self.merge_group(SyncCount(key, spelling, jobs))
        return key

    def merge(self, other: SyncFold) -> None:
        """Add everything that another fold of the same view has counted."""
        for count in other.groups():
            self.merge_group(count)

    def merge_group(self, count: SyncCount) -> None:
        """Add a count, e.g. one from the store."""
        held = self._counts.get(count.key)
        self._counts[count.key] = count if held is None else held.plus(count)

    def groups(self) -> Iterator[SyncCount]:
        """All counts, in the order of their keys."""
        for key in sorted(self._counts):
            yield self._counts[key]
