"""Runs of different sources that are one job: pairs, each stored in both directions (`publisher.same_job`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, TextClause, delete, select, text

from publisher.job_ids import local_id
from publisher.store import dialect, paging
from publisher.store.schema import runs, same_jobs

_OF_OTHERS: Final = (
    "JOIN classes ON classes.id = runs.class_id AND classes.source_id <> :source WHERE runs.finished = 1"
)
_FROM: Final[Mapping[str, str]] = {
    "sqlite": "SELECT runs.id, runs.local_id, runs.end_time FROM json_each(:keys) AS asked CROSS JOIN runs ON",
    "postgresql": "SELECT runs.id, runs.local_id, runs.end_time "
    "FROM json_array_elements_text(CAST(:keys AS JSON)) AS asked(value) JOIN runs ON",
}
_WHOLE: Final = {name: text(f"{start} runs.local_id = asked.value {_OF_OTHERS}") for name, start in _FROM.items()}
_WITH_HOST: Final[Mapping[str, TextClause]] = {
    "sqlite": text(
        f"{_FROM['sqlite']} runs.local_id >= asked.value || '.:' AND runs.local_id < asked.value || '/' {_OF_OTHERS}"
    ),
    "postgresql": text(
        f"{_FROM['postgresql']} runs.local_id >= (asked.value || '.:') COLLATE \"C\" "
        f"AND runs.local_id < (asked.value || '/') COLLATE \"C\" {_OF_OTHERS}"
    ),
}
"""Ids that begin with a number and go on with a host, such as `4711.server`: `:` is the character after the digits, `/`
the one after the full stop. HTCondor's processes are left out: a cluster may have a hundred thousand."""


class LookedUp(msgspec.Struct, frozen=True, gc=False):
    """A run by its local id; `end`: epoch seconds."""

    run_id: int
    local_id: str
    end: int


def of_other_sources(connection: Connection, source_id: int, ids: Collection[str]) -> list[LookedUp]:
    """The finished runs of other sources with one of these ids, in any spelling with which they may be the same job."""
    whole, numbers = set(ids), set[str]()
    for job in map(local_id, ids):
        if job.part is None or job.part == "0":
            whole.add(job.key)
            if job.key.isdecimal():
                numbers.add(job.key)
        if job.key.isdecimal():
            whole.add(f"{job.key}.{job.part or 0}")
    rows: list[Any] = []
    for asked, statement in ((whole, _WHOLE), (numbers, _WITH_HOST)):
        for some in paging.chunks(asked):
            values = {"keys": msgspec.json.encode(some).decode(), "source": source_id}
            rows += connection.execute(statement[connection.dialect.name], values)
    return [LookedUp(*row) for row in {row[0]: row for row in rows if row[2] is not None}.values()]


_others: Final = runs.alias("others")
_PAIRS: Final = select(same_jobs.c.run_id, _others.c.id).join(_others, _others.c.record_key == same_jobs.c.other_key)


def add(connection: Connection, pairs: Sequence[tuple[int, int]]) -> None:
    """Store pairs of runs."""
    query = select(runs.c.id, runs.c.record_key)
    keys = dict(map(tuple, paging.rows_in(connection, query, runs.c.id, {each for pair in pairs for each in pair})))
    both = [each for one, other in pairs for each in ((one, keys[other]), (other, keys[one]))]
    dialect.insert_missing(connection, same_jobs, [{"run_id": one, "other_key": other} for one, other in both])


def forget(connection: Connection, run_ids: Sequence[int]) -> set[int]:
    """Remove the pairs of these runs; return both runs of each."""
    pairs = set(map(tuple, paging.rows_in(connection, _PAIRS, same_jobs.c.run_id, run_ids)))
    keys = select(runs.c.record_key).where(runs.c.id.in_([one for one, _ in pairs]))
    paging.execute_in(connection, delete(same_jobs), same_jobs.c.run_id, run_ids)
    of_them = delete(same_jobs).where(same_jobs.c.other_key.in_(keys))
    paging.execute_in(connection, of_them, same_jobs.c.run_id, [other for _, other in pairs])
    return {each for pair in pairs for each in pair}


def linked(connection: Connection, run_ids: Iterable[int]) -> dict[int, set[int]]:
    """By run id: the runs that are the same job; of these runs, and of all that are linked with them over others."""
    links: defaultdict[int, set[int]] = defaultdict(set)
    asked, new = set[int](), set(run_ids)
    while new:
        asked |= new
        for run_id, other_id in paging.rows_in(connection, _PAIRS, same_jobs.c.run_id, sorted(new)):
            links[run_id].add(other_id)
        new = {other for others in links.values() for other in others} - asked
    return dict(links)


def linked_with(connection: Connection, keys: Iterable[bytes]) -> list[int]:
    """The runs that are the same job as one with one of these keys."""
    query = select(same_jobs.c.run_id)
    return [row[0] for row in paging.rows_in(connection, query, same_jobs.c.other_key, keys)]


def connected(links: Mapping[int, Collection[int]]) -> dict[int, set[int]]:
    """By run id: the runs that are linked with a run, over others too, and itself."""
    groups: dict[int, set[int]] = {}
    for run_id in links:
        if run_id in groups:
            continue
        new, whole = {run_id}, set[int]()
        while new:
            whole |= new
            new = {other for each in new for other in links[each]} - whole
        groups |= dict.fromkeys(whole, whole)
    return groups


def pages(connection: Connection, size: int) -> Iterable[list[int]]:
    """All runs that are the same job as another one, by pages."""
    query = select(same_jobs.c.run_id).distinct()
    for page in paging.pages_by_id(connection, query, same_jobs.c.run_id, size):
        yield [row[0] for row in page]
