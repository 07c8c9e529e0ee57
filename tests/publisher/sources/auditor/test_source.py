"""Reading AUDITOR's REST interface: nothing is skipped, whatever it answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from publisher.errors import SourceError, SourceFormatError
from publisher.simulator.pki import Pki
from publisher.sources.auditor.source import AuditorSource
from publisher.sources.base import Window
from tests.publisher.sources.auditor.auditor_records import NOW, component, record, settings, text
from tests.publisher.sources.auditor.auditor_server import AuditorServer, auditor_server
from tests.publisher.sources.log_reading import Seen, read_on

DAY = 86_400


@pytest.fixture
def auditor() -> Iterator[AuditorServer]:
    with auditor_server() as server:
        yield server


def source(auditor: AuditorServer, now: float = NOW, **more: Any) -> AuditorSource:
    return AuditorSource("k8s", settings(auditor.url, **more), lambda: now)


def tls(auditor: AuditorServer, credentials: dict[str, Any]) -> AuditorSource:
    return AuditorSource("k8s", settings(auditor.url, credentials=credentials), time.time)


def ids(seen: Seen) -> list[str]:
    return sorted(str(job.global_id) for job in seen.jobs.values())


def levels(found: AuditorSource) -> list[str]:
    return [finding.level for finding in found.check()]


def test_all_pages_are_read_and_a_second_reading_asks_for_the_overlap_only(auditor: AuditorServer) -> None:
    auditor.add(*[record(f"r{number:03d}", NOW - 40 * DAY + number * 3_600) for number in range(250)])
    seen = read_on(source(auditor, page=50), Seen())
    assert len(seen.jobs) == 250
    assert seen.at_end
    auditor.requests.clear()
    auditor.add(record("new", NOW + 10))
    again = read_on(source(auditor, NOW + 60, page=50), Seen(cursor=seen.cursor))
    assert ids(again) == ["new"]
    assert all("%5B" not in each for each in auditor.requests)
    assert f"stop_time[gte]={text(NOW - 7 * DAY)[:-1]}.000000Z" in auditor.requests[-1]


def test_late_and_changed_records_within_the_overlap_are_met(auditor: AuditorServer) -> None:
    auditor.add(record("a", NOW - DAY), record("running", None))
    seen = read_on(source(auditor), Seen())
    assert ids(seen) == ["a"]
    auditor.add(record("late", NOW - 2 * DAY))
    auditor.end("a", text(NOW - DAY + 600))
    auditor.end("running", text(NOW + 600))
    again = read_on(source(auditor, NOW + 3_600), Seen(cursor=seen.cursor))
    assert ids(again) == ["a", "late", "running"]
    assert next(job.wall_ms for job in again.jobs.values() if job.global_id == "a") == 4_200_000


def test_a_record_that_is_later_than_the_overlap_is_met_by_a_window(auditor: AuditorServer) -> None:
    auditor.add(record("a"))
    seen = read_on(source(auditor), Seen())
    auditor.add(record("late", NOW - 30 * DAY))
    later = source(auditor, NOW + 60)
    assert ids(read_on(later, Seen(cursor=seen.cursor))) == ["a"]
    pages = list(later.pages(seen.cursor, Window(NOW - 31 * DAY, NOW - 29 * DAY)))
    assert [job.global_id for page in pages for job in page.jobs] == ["late"]
    assert {str(page.cursor) for page in pages} == {str(seen.cursor)}


@pytest.mark.parametrize("short", [[3], [0], [3, 4], [2, 10, 1]])
def test_an_answer_that_ends_early_is_noticed(auditor: AuditorServer, short: list[int]) -> None:
    auditor.add(*[record(f"r{number}", NOW - 100 + number) for number in range(10)])
    auditor.short = list(short)
    assert len(read_on(source(auditor), Seen()).jobs) == 10


def test_answers_that_never_agree_are_an_error_and_the_cursor_stays(auditor: AuditorServer) -> None:
    auditor.add(*[record(f"r{number}", NOW - 100 + number) for number in range(10)])
    auditor.short = [*range(1, 9)]
    seen = Seen()
    with pytest.raises(SourceError, match="gives other records each time"):
        read_on(source(auditor), seen)
    assert not seen.cursor
    assert len(read_on(source(auditor), seen).jobs) == 10


def test_records_that_arrive_during_a_reading(auditor: AuditorServer) -> None:
    auditor.add(record("a", NOW - 100))
    auditor.before_answer = [record(f"n{number}", NOW - 50 + number) for number in range(3)]
    assert ids(read_on(source(auditor), Seen())) == ["a", "n0", "n1", "n2"]


def test_many_records_that_ended_at_the_same_instant(auditor: AuditorServer) -> None:
    auditor.add(*[record(f"r{number:02d}", NOW - 100) for number in range(30)], record("last", NOW - 99))
    assert len(read_on(source(auditor, page=4), Seen()).jobs) == 31


def test_an_interrupted_first_reading_continues(auditor: AuditorServer) -> None:
    auditor.add(*[record(f"r{number:02d}", NOW - 20 * DAY + number * 3_600) for number in range(20)])
    seen = Seen()
    for number, page in enumerate(source(auditor, page=5).pages({})):
        seen.add(page.jobs)
        seen.cursor = dict(page.cursor)
        if number == 2:
            break
    assert 5 < len(seen.jobs) < 20
    auditor.add(record("late", NOW - 3 * DAY))
    auditor.requests.clear()
    auditor.add(record("later", NOW - 6 * DAY))
    read_on(source(auditor, NOW + DAY, page=5), seen)
    assert len(seen.jobs) == 22
    assert not any("1970" in each and "lt" not in each for each in auditor.requests if "limit=5" in each)


def test_a_clock_that_was_wrong_reads_all_again(auditor: AuditorServer) -> None:
    auditor.add(record("a", NOW - 30 * DAY))
    seen = read_on(source(auditor, NOW + 400 * DAY), Seen())
    assert ids(read_on(source(auditor), Seen(cursor=seen.cursor))) == ["a"]


def test_a_record_without_an_end_of_its_own_is_refused_whenever_it_comes(auditor: AuditorServer) -> None:
    """HTCondor's collector writes 1970 where a job has no CompletionDate."""
    auditor.add(record("a"))
    seen = read_on(source(auditor), Seen())
    auditor.add(record("none", 0, start=NOW - 60))
    read_on(source(auditor, NOW + 60), seen)
    assert [each.reason for each in seen.unreadable] == [
        "stop_time is before start_time; the collector wrote no time of the end"
    ]


def test_what_was_refused_is_recovered_when_it_can_be_read(auditor: AuditorServer) -> None:
    auditor.add(record("a", cpu=7_200_000))
    seen = read_on(source(auditor), Seen())
    assert [each.raw for each in seen.unreadable] == [b"a"]
    assert seen.cursor["refused"] == ["a"]
    read_on(source(auditor, components={"cpu": {"name": "TotalCPU", "unit": "ms"}}), seen)
    assert ids(seen) == ["a"]
    assert [each.raw for each in seen.recovered] == [b"a"]
    assert "refused" not in seen.cursor


def test_records_that_were_archived_unread_are_lost_input(auditor: AuditorServer) -> None:
    auditor.add(record("a", NOW - DAY))
    seen = read_on(source(auditor), Seen())
    auditor.records.clear()
    auditor.add(record("b", NOW + 40 * DAY))
    read_on(source(auditor, NOW + 41 * DAY), seen)
    (lost,) = seen.unreadable
    assert lost.unread_from == NOW - DAY
    assert "archived" in lost.reason
    assert ids(seen) == ["a", "b"]
    read_on(source(auditor, NOW + 41 * DAY), seen)
    assert len(seen.unreadable) == 1


def test_a_quiet_time_is_not_lost_input(auditor: AuditorServer) -> None:
    auditor.add(record("a", NOW - DAY))
    seen = read_on(source(auditor), Seen())
    auditor.add(record("b", NOW + 40 * DAY))
    assert read_on(source(auditor, NOW + 41 * DAY), seen).unreadable == []


def test_only_what_is_selected_is_asked_for(auditor: AuditorServer) -> None:
    auditor.add(record("s-1"), record("s-2", site_id="B"), record("t-1"), record("s-3", publisher="usage-publisher"))
    seen = read_on(source(auditor, where={"site_id": "A"}, record_prefix="s"), Seen())
    assert ids(seen) == ["s-1"]
    assert all("&meta[site_id][c][0]=A" in each for each in auditor.requests)
    seen = read_on(source(auditor, where={"site_id": "A", "a key": "x"}), Seen())
    assert ids(seen) == []


HOSTILE = {
    "no JSON": b"<html>busy</html>",
    "half a record": b'{"record_id": "a", "meta": {',
    "nested": b'{"record_id": ' + b"[" * 200_000,
    "a long number": b'{"record_id": "a", "components": [{"amount": ' + b"9" * 5_000 + b"}]}",
    "an array of numbers": b"[1, 2]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_that_is_no_stream_of_records(auditor: AuditorServer, name: str) -> None:
    auditor.body = HOSTILE[name]
    with pytest.raises(SourceFormatError, match="is not a stream of records"):
        read_on(source(auditor), Seen())
    assert levels(source(auditor)) == ["red"]


def test_an_answer_that_is_too_large_is_asked_for_in_parts(auditor: AuditorServer) -> None:
    large = {f"key{number}": "x" * 4_000 for number in range(500)}
    auditor.add(*[record(f"r{number:02d}", NOW - 100 + number, **large) for number in range(9)])
    assert len(read_on(source(auditor), Seen()).jobs) == 9


def test_an_endless_answer_is_an_error(auditor: AuditorServer) -> None:
    auditor.body = b" " * (17 << 20)
    with pytest.raises(SourceFormatError, match="is too large"):
        read_on(source(auditor, page=2), Seen())


@pytest.mark.parametrize(("status", "said"), [(403, "read_access_cn"), (400, "Check that the URL"), (500, "log")])
def test_a_refusal(auditor: AuditorServer, status: int, said: str) -> None:
    auditor.status = status
    with pytest.raises(SourceError, match=f"answers {status}") as caught:
        read_on(source(auditor), Seen())
    assert said in caught.value.hint


def test_a_server_that_does_not_sort(auditor: AuditorServer) -> None:
    auditor.add(record("a", NOW - 10), record("b", NOW - 20), record("c", NOW - 15))
    auditor.query = lambda query: list(auditor.records.values())  # type: ignore[method-assign]
    with pytest.raises(SourceFormatError, match="order"):
        read_on(source(auditor), Seen())


def test_check(auditor: AuditorServer) -> None:
    assert levels(source(auditor)) == ["yellow"]
    auditor.add(record("a"))
    assert levels(source(auditor)) == ["green"]
    auditor.add({**record("pod"), "components": [component("naive_cpu_time", 4)]})
    auditor.add({**record("bad"), "components": [component("Cores", 2**62)]})
    green, refused, cores, cpu = source(auditor).check()
    assert (green.level, refused.level, cores.level, cpu.level) == ("green", "yellow", "yellow", "yellow")
    assert "1 of 2 newest records have no component for `cores`" in cores.message
    assert "Cores, NNodes, TotalCPU, naive_cpu_time" in cores.message
    assert cores.hint == "Set sources.k8s.auditor.components.cores"


def test_nobody_answers() -> None:
    gone = AuditorSource("a", settings("http://127.0.0.1:9"), lambda: NOW)
    (finding,) = gone.check()
    assert finding.level == "red"
    assert "cannot connect" in finding.message


def test_tls_with_a_certificate(pki: Pki) -> None:
    with auditor_server(pki) as auditor:
        auditor.add(record("a"))
        given = {"certificate": pki.client.certificate, "key": pki.client.key, "ca_file": pki.ca_file}
        assert ids(read_on(tls(auditor, given), Seen())) == ["a"]
        broken = {**given, "certificate": pki.client.key}
        with pytest.raises(SourceError):
            read_on(tls(auditor, broken), Seen())
