"""Wrong input, whatever it is: what `status` says of it afterwards, and that it costs only itself."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from publisher.cli.status_cmd import show_status, status_json
from publisher.collect.collect import Collected
from publisher.sources.base import Window
from publisher.status.check import reading_the_same
from publisher.status.status import SourceStatus
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOW, Site

GOOD = b"q:n1:g:o:n:%d:sge:0:1793500000:1793500010:1793500110:0:0:100:" + b"0:" * 17 + b"NONE:d:%s:1:0:1.5:0:0"
GOOD += b":NONE:0.0:%s:3231744.0:0:0\n"
SERIAL = GOOD % (1, b"NONE", b"NONE")
SLAVES = b"".join(GOOD % (7, b"mpi", task) for task in (b"1.n2", b"2.n3"))
LATE = GOOD.replace(b"1793500110", b"%d" % (NOW + 90_000)) % (2, b"NONE", b"NONE")


def site_of(folder: Path, *names: str) -> Site:
    """A site whose sources read Grid Engine's file in this folder."""
    site = Site(folder, [], [RecordReceiver("neic")])
    source = {"type": "gridengine", "path": "accounting", "cluster": "c"}
    site.table["sources"] = dict.fromkeys(names or ("ge",), source)
    return site


def collect(site: Site, window: Window | None = None) -> dict[str, Collected]:
    found = site.publisher.collect((), window)
    assert found is not None
    return found


def status_of(site: Site) -> SourceStatus:
    return site.publisher.status().sources["ge"]


def a_folder(file: Path) -> None:
    file.mkdir()


def a_fifo(file: Path) -> None:
    os.mkfifo(file)


def a_loop(file: Path) -> None:
    file.symlink_to(file)


def forbidden(file: Path) -> None:
    file.write_bytes(SERIAL)
    file.chmod(0)
    if os.geteuid() == 0:  # nothing is denied to root but what the system itself denies
        file.unlink()
        file.symlink_to("/proc/1/mem")


def cut_short(file: Path) -> None:
    file.write_bytes(gzip.compress(b"".join(GOOD % (number, b"NONE", b"NONE") for number in range(2_000)))[:-2_000])


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(content)


FAILING = {
    "nothing": (lambda _file: None, "there is no such file"),
    "a folder without logs": (a_folder, "is empty: it has no file named accounting"),
    "a FIFO": (a_fifo, "this is a FIFO (named pipe), not a file"),
    "a loop": (a_loop, "the symbolic links form a loop"),
    "no permission": (forbidden, ("permission denied", "Input/output error")),
    "an executable": (holding(b"\x7fELF\0\0\0\n\0\0\n"), "this looks like binary data"),
    "ARC's database": (holding(b"SQLite format 3\0" + b"\0\x0a" * 500), "this looks like an SQLite database, as ARC's"),
    "TORQUE's log": (holding(b"11/01/2026 00:00:00;Q;1.s;queue=x\n"), "this looks like a TORQUE or PBS accounting log"),
    "only NULs": (holding(b"\0" * 4_096), "nothing but NUL bytes from byte 0"),
    "only many NULs": (holding(b"\0" * (3 << 20)), "nothing but NUL bytes from byte 0"),
    "only NULs, compressed": (holding(gzip.compress(b"\0" * 4_096)), "nothing but NUL bytes from byte 0"),
    "NULs behind a line": (holding(SERIAL + b"\0" * (2 << 20)), f"nothing but NUL bytes from byte {len(SERIAL)}"),
    "a copy cut short": (cut_short, "the compressed file is cut short or damaged"),
}


@pytest.mark.parametrize("what", FAILING)
def test_what_cannot_be_read_is_said_and_read_when_it_can(tmp_path: Path, what: str) -> None:
    prepare, expected = FAILING[what]
    site, file = site_of(tmp_path), tmp_path / "accounting"
    prepare(file)
    for _ in range(2):
        collect(site)
    found = status_of(site)
    words = expected if isinstance(expected, tuple) else (expected,)
    assert any(word in (found.error or "") for word in words), found.error
    assert not found.read_to_end
    assert not site.publisher.status().complete
    before = found.jobs
    if file.is_dir():
        file.rmdir()
    file.unlink(missing_ok=True)
    file.write_bytes(SERIAL)
    collect(site)
    if what == "a copy cut short":
        assert status_of(site).unread_files == 1, "what was behind the damage was never read"
        site.publisher.settle_unreadable("there is no whole copy")
    found = status_of(site)
    assert (found.error, found.read_to_end, found.jobs) == (None, True, max(before, 1))


LONG = b"d" * 1_100_000
UNREADABLE = {
    "negative times": (
        SERIAL.replace(b":1793500010:", b":-1793500010:"), "field 10 should be a whole number that is not negative"
    ),
    "an end before the start": (SERIAL.replace(b":1793500110:", b":1793500000:"), "the job ends before it starts"),
    "a torn line": (SERIAL[:100] + b"\n", "a record has at least 43 fields, this line has 33"),
    "two lines glued": (SERIAL[:-1] + SERIAL, "two records are in one line"),
    "binary": (bytes(range(1, 10)) * 50 + b"\n", "a record has at least 43 fields, this line has 1"),
    "a line that is too long": (SERIAL.replace(b":d:", b":" + LONG + b":"), "the line is longer than 1048576 bytes"),
}  # fmt: skip


MAY_BE_RESTS = {"two lines glued": 0, "a line that is too long": 1}
"""They end as a record does, or may: a user can have written their beginning. With the number of jobs that count of one
before and one after them: a user can also have written what follows the first of two glued lines."""


@pytest.mark.parametrize("what", sorted(MAY_BE_RESTS))
def test_a_line_that_may_end_a_broken_record_makes_those_beside_it_suspect(tmp_path: Path, what: str) -> None:
    line, reason = UNREADABLE[what]
    site = site_of(tmp_path)
    others = [GOOD % (number, b"NONE", b"NONE") for number in (2, 3)]
    (tmp_path / "accounting").write_bytes(others[0] + line + others[1])
    collect(site)
    found = status_of(site)
    counted = MAY_BE_RESTS[what]
    assert (found.jobs, found.unreadable, found.error, found.read_to_end) == (counted, 3 - counted, None, True)
    assert {row.is_suspect: row.reason for row in site.publisher.unreadable()}[False] == reason


@pytest.mark.parametrize("what", [what for what in UNREADABLE if what not in MAY_BE_RESTS])
def test_a_line_that_is_not_a_record_costs_only_itself(tmp_path: Path, what: str) -> None:
    line, reason = UNREADABLE[what]
    site = site_of(tmp_path)
    others = [GOOD % (number, b"NONE", b"NONE") for number in (2, 3)]
    (tmp_path / "accounting").write_bytes(others[0] + line + others[1])
    collect(site)
    found = status_of(site)
    assert (found.jobs, found.unreadable, found.error, found.read_to_end) == (2, 1, None, True)
    (item,) = site.publisher.unreadable()
    assert item.reason == reason


def test_what_is_settled_and_read_again_is_listed_only_where_it_is_still_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site, file = site_of(tmp_path), tmp_path / "accounting"
    torn = [(GOOD % (number, b"NONE", b"NONE"))[:70] + b"\n" for number in (2, 3)]
    file.write_bytes(SERIAL + torn[0] + torn[1])
    collect(site)
    assert (status_of(site).jobs, status_of(site).unreadable) == (1, 2)
    file.write_bytes(SERIAL + GOOD % (2, b"NONE", b"NONE") + torn[1])
    assert len(site.publisher.settle_unreadable("job 2 is mended")) == 2
    assert status_of(site).unreadable == 0
    collect(site, Window(NOW - 86400 * 365, None))
    assert (status_of(site).jobs, status_of(site).unreadable) == (2, 1)
    assert [row.raw for row in site.publisher.unreadable()] == [torn[1][:-1]]
    show_status(site.publisher.status())
    assert "some input is unreadable" in " ".join(capsys.readouterr().out.split())
    site.publisher.settle_unreadable("job 3 is lost")
    show_status(site.publisher.status())
    assert "unreadable input" not in " ".join(capsys.readouterr().out.split()).lower()


def test_an_empty_file_is_not_an_error(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    (tmp_path / "accounting").touch()
    collect(site)
    assert status_of(site) == SourceStatus(last_collected=NOW, read_to_end=True)


def test_a_last_line_without_end_is_named_until_it_has_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site, file = site_of(tmp_path), tmp_path / "accounting"
    file.write_bytes(SERIAL + (GOOD % (2, b"NONE", b"NONE"))[:70])
    collect(site)
    (text,) = status_of(site).waiting
    assert text == f"{file}: the last line is incomplete (70 bytes); it is read when it is complete"
    assert status_json(site.publisher.status())["sources"]["ge"]["waiting"] == (text,)
    show_status(site.publisher.status())
    assert "the last line is incomplete (70 bytes)" in " ".join(capsys.readouterr().out.split())
    collect(site)
    assert status_of(site).waiting == (text,)
    file.write_bytes(SERIAL + GOOD % (2, b"NONE", b"NONE"))
    collect(site)
    assert (status_of(site).waiting, status_of(site).jobs) == ((), 2)


def test_slave_records_wait_for_their_master_in_sight(tmp_path: Path) -> None:
    site, file = site_of(tmp_path), tmp_path / "accounting"
    file.write_bytes(SLAVES)
    collect(site)
    assert status_of(site).waiting == ("2 slave records of 1 parallel job without the master's record so far",)
    file.write_bytes(SLAVES + GOOD % (7, b"mpi", b"NONE"))
    collect(site)
    assert (status_of(site).waiting, status_of(site).jobs) == ((), 1)


def test_a_clock_in_the_future(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site, file = site_of(tmp_path), tmp_path / "accounting"
    file.write_bytes(SERIAL)
    collect(site)
    assert not status_of(site).ends_in_future
    file.write_bytes(SERIAL + LATE)
    collect(site)
    assert (status_of(site).ends_in_future, status_of(site).jobs) == (True, 2)
    show_status(site.publisher.status())
    assert "a clock is wrong" in " ".join(capsys.readouterr().out.split())
    site.now += 90_000
    assert not status_of(site).ends_in_future


def test_a_file_that_was_cut_is_reported(tmp_path: Path) -> None:
    site, file = site_of(tmp_path), tmp_path / "accounting"
    file.write_bytes(SERIAL * 3)
    collect(site)
    file.write_bytes(GOOD % (5, b"NONE", b"NONE"))
    collect(site)
    assert (status_of(site).jobs, status_of(site).unreadable) == (2, 1)
    assert "was cut or overwritten" in site.publisher.unreadable()[0].reason


def test_two_sources_of_one_file_give_a_job_once_and_check_says_so(tmp_path: Path) -> None:
    site = site_of(tmp_path, "ge", "again")
    (tmp_path / "accounting").write_bytes(SERIAL)
    found = collect(site)
    assert (found["ge"].new, found["again"].new, found["again"].unchanged) == (1, 0, 1)
    assert {name: source.jobs for name, source in site.publisher.status().sources.items()} == {"ge": 1, "again": 0}
    (finding,) = reading_the_same(site.config)
    assert (finding.level, finding.subject) == ("yellow", "source again")
    assert "counts once" in finding.message


@pytest.mark.parametrize(
    ("path", "cluster", "levels"),
    [("accounting", "d", ["red"]), (".", "c", ["yellow"]), ("./../accounting", "c", []), ("account", "c", [])],
)
def test_sources_that_overlap(tmp_path: Path, path: str, cluster: str, levels: list[str]) -> None:
    site = site_of(tmp_path, "ge")
    site.table["sources"]["other"] = {"type": "gridengine", "path": path, "cluster": cluster}
    assert [finding.level for finding in reading_the_same(site.config)] == levels
