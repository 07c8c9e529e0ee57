"""Jobs by a pattern of what they are called: only that is read of each run, and what is found is what is there."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from publisher.api import Publisher
from publisher.encoded_run import encode_run, encode_whole
from publisher.errors import StoreCorruptError, StoreNewerError
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from publisher.store import queries
from publisher.store.classes import Names, names
from tests.publisher.site import make_job

SINCE, UNTIL = 0, 1_796_083_200


def test_jobs_found_by_a_pattern_are_those_that_reading_every_run_finds(every_source: Publisher) -> None:
    """The search looks at no more than what jobs are called, and at each run in the order of their ends."""
    prefixes = every_source.config.local_id_prefixes
    with every_source.store.read() as connection:
        runs = [run for run, _ in queries.runs_in(connection, SINCE, UNTIL, None, 10_000)]
        named = list(queries.names_in(connection, SINCE, UNTIL, None, 10_000))
    assert [(one.run_id, one.source, one.end) for one in named] == [
        (run.run_id, run.source, run.job.end) for run in runs
    ]
    for pattern in ("*1*", "ge-*", "*job*", "?", "*", "[a-m]*", "nothing*"):
        request = ReportRequest(start=SINCE, stop=UNTIL, filters={"job": pattern})
        found = make("job", ReportContext(every_source.store, every_source.config, UNTIL), request)
        expected = []
        for run in runs:
            local_id = run.job.local_id
            behind = prefixes[run.source] + local_id if local_id else None
            words = [word for word in (local_id, behind, run.job.name, run.job.global_id) if word]
            if any(fnmatchcase(word, pattern) for word in words):
                expected.append(run.record_id)
        assert [row[0] for row in found.rows if row[1] == "source"] == expected
        assert bool(expected) == (pattern != "nothing*")


def test_names_of_what_cannot_be_read_are_not_guessed() -> None:
    job = make_job(1, local_id="4711", name="fit", global_id=None)
    stored = encode_run(job).stored
    assert names(stored, "number 1") == names(encode_whole(job), "number 1") == Names("4711", "fit", None)
    with pytest.raises(StoreNewerError):
        names(b"\x63" + stored[1:], "number 1")
    for damaged in (stored[:-1], b""):
        with pytest.raises(StoreCorruptError, match="number 1"):
            names(damaged, "number 1")
