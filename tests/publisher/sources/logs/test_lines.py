"""A source of lines: pages and cursors, and what it says of input that is not what it should be."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from publisher.config.schema import SourceSettings as Settings
from publisher.errors import SourceError, SourceFormatError, SourceMissingError
from publisher.sources.base import PAGE_RECORDS, Page
from publisher.sources.dqs import DqsSource
from publisher.sources.gridengine.source import GridEngineParser, GridEngineSource
from publisher.sources.logs.lines import LineSource
from publisher.sources.logs.reader import LogReader
from publisher.sources.logs.sniff import KINDS, looks_like
from tests.publisher.sources.log_reading import Seen, read_on

SERIAL = b"q:h:g:o:n:%d:sge:0:1800000000:1800000010:1800000110:0:0:100:" + b"0:" * 17 + b"NONE:d:NONE:1:0:1.5:0:0"
SERIAL += b":NONE:0.0:NONE:3231744.0:0:0\n"


def source(path: Path) -> LineSource:
    return GridEngineSource("ge", Settings(type="gridengine", path=path, cluster="c"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "accounting"
    path.write_bytes(b"".join(SERIAL % number for number in range(3)))
    return path


def test_a_further_folder_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    (tmp_path / "accounting").write_bytes(SERIAL % 1)
    old = tmp_path / "old"
    settings = Settings(type="gridengine", path=tmp_path / "accounting", rotated_to=(old,))
    reported = [finding for finding in GridEngineSource("ge", settings).check() if str(old) in finding.message]
    assert [(finding.level, finding.hint) for finding in reported] == [("yellow", "Correct rotated_to")]


def test_pages_are_bounded_and_each_carries_its_cursor(file: Path) -> None:
    file.write_bytes(b"".join(SERIAL % number for number in range(20_000)))
    pages = list(source(file).pages({}))
    assert len(pages) > 3
    assert all(page.read < 2 * PAGE_RECORDS for page in pages)
    assert [page.at_end for page in pages] == [False] * (len(pages) - 1) + [True]
    for stop in range(len(pages)):
        rest = sum(page.read for page in source(file).pages(pages[stop].cursor))
        assert rest == 20_000 - sum(page.read for page in pages[: stop + 1])


def test_each_page_says_how_much_of_all_files_is_read(file: Path) -> None:
    """Also where a reading continues, so that the remaining time is that of what is left."""
    file.write_bytes(b"".join(SERIAL % number for number in range(5_000)))
    file.with_name("accounting.1").write_bytes(b"".join(SERIAL % number for number in range(5_000, 20_000)))
    pages = list(source(file).pages({}))
    shares = [page.share for page in pages[:-1]]
    assert len(shares) > 3
    assert shares == sorted(shares)
    first, *_, last = shares
    assert first == pytest.approx(pages[0].read / 20_000, abs=0.02)
    assert last == pytest.approx(1 - pages[-1].read / 20_000, abs=0.02)
    later = [page.share for page in source(file).pages(pages[1].cursor)]
    assert later[0] == pytest.approx(shares[2], abs=0.01), "counted from the beginning"


def test_a_bad_line_is_reported_with_its_place(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"garbage \xff\n" + lines[1])
    (page,) = source(file).pages({})
    assert len(page.jobs) == 2
    (bad,) = page.unreadable
    assert (bad.file, bad.line, bad.offset, bad.raw) == (str(file), 2, len(lines[0]), b"garbage \xff")
    assert "43 fields" in bad.reason


def test_a_parsers_cursor_of_something_else_is_taken_as_nothing(file: Path) -> None:
    (page,) = source(file).pages({"parser": ["?"]})
    assert page.read == 3


def test_an_empty_file(file: Path) -> None:
    file.write_bytes(b"")
    (page,) = source(file).pages({})
    assert (page.read, page.at_end) == (0, True)
    assert any("has no complete line" in finding.message for finding in source(file).check())


FOREIGN = {
    "torque": b"04/18/2026 12:00:00;E;1.server;user=ada group=chem jobname=x\n",
    "slurm": b"JobID|JobIDRaw|Cluster|Partition|Account|Group\n1|1|c|p|a|g\n",
    "slurm-jobcomp": b"JobId=4 UserId=ada(1) GroupId=chem(1) Name=x\n",
    "lsf": b'"JOB_FINISH" "10.1" 1800000000 7 1001 33554434\n',
    "blah": b'"timestamp=2026-11-01 10:00:00" "userDN=/CN=ada"\n',
    "htcondor": b"*** Offset = 0 ClusterId = 1 ProcId = 0\n",
    "htcondor-json": b'[\n{\n  "Cmd": "x",\n  "ClusterId": 1\n}\n]\n',
    "htcondor-xml": b'<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "classads.dtd">\n<classads>\n</classads>\n',
    "slurm-json": b'{\n  "meta": {\n  },\n  "jobs": []\n}\n',
    "dqs": b"q:h:1:c:g:o:n:d:" + b"1:" * 22 + b"1\n",
    "dqs-stat": b"1800000600:alpha:fast.q:1:4:2:aix,memory=64:er\n",
    "gridengine-reporting": b"1800000600:acct:q:h\n",
    "sqlite": b"SQLite format 3\0" + b"\0" * 5000 + b"\n",
    "xml": b"<?xml version='1.0'?>\n",
    "binary": b"\x7fELF\0\0\0\n\0\0\n",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_the_log_of_something_else_is_refused_by_name(file: Path, kind: str) -> None:
    file.write_bytes(FOREIGN[kind])
    pages: list[Page] = []
    with pytest.raises(SourceFormatError, match=f"this looks like {KINDS[kind]}"):
        pages.extend(source(file).pages({}))
    assert looks_like(FOREIGN[kind].splitlines()) == kind
    assert any(finding.level == "red" and KINDS[kind] in finding.message for finding in source(file).check())


def test_a_grid_engine_file_is_none_of_dqs(file: Path) -> None:
    log = DqsSource("d", Settings(type="dqs", path=file))
    with pytest.raises(SourceFormatError, match="looks like a Grid Engine accounting file,"):
        list(log.pages({}))


def test_a_refused_file_is_read_once_it_is_right(file: Path) -> None:
    good = file.read_bytes()
    file.write_bytes(FOREIGN["binary"])
    seen = Seen()
    with pytest.raises(SourceFormatError):
        read_on(source(file), seen)
    assert seen.unreadable == []
    file.write_bytes(FOREIGN["binary"] + good)
    assert len(read_on(source(file), seen).jobs) == 3
    assert len(seen.unreadable) == 2


def test_a_file_that_did_not_change_is_not_opened_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = read_on(source(file), Seen())
    opened = os.open

    def refusing(path: Any, *arguments: Any, **named: Any) -> int:
        assert Path(path) != file, f"{path} was opened"
        return opened(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refusing)
    assert len(read_on(source(file), seen).jobs) == 3


def test_the_state_of_a_parser_is_copied_for_pages_not_for_files(tmp_path: Path) -> None:
    """It has all unfinished jobs: with a log for each day, or job, the time of reading would grow with its square."""
    copies: list[object] = []

    class CountingParser(GridEngineParser):
        def state(self) -> Any:
            copies.append(None)
            return super().state()

    for number in range(20):
        (tmp_path / f"accounting-202611{number + 1:02}").write_bytes(SERIAL % number)
    log = LineSource("ge", "gridengine", LogReader(tmp_path), lambda: CountingParser("c"))
    assert sum(page.read for page in log.pages({})) == 20
    assert len(copies) == 1


def test_one_bad_file_stops_only_itself(file: Path) -> None:
    os.mkfifo(file.with_name("accounting.1"))
    file.with_name("accounting.2").symlink_to("accounting.2")
    seen = Seen()
    with pytest.raises(SourceError, match="2 files could not be read") as raised:
        read_on(source(file), seen)
    assert "FIFO" in raised.value.message
    assert "symbolic links form a loop" in raised.value.message
    assert len(seen.jobs) == 3
    assert not seen.at_end


def test_what_is_not_a_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(SourceFormatError, match=r"this is a FIFO \(named pipe\), not a file"):
        list(source(fifo).pages({}))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(SourceError, match="the symbolic links form a loop"):
        list(source(loop).pages({}))
    with pytest.raises(SourceFormatError, match="this is a device"):
        list(source(Path("/dev/null")).pages({}))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(SourceFormatError, match="this is a socket"):
            list(source(tmp_path / "socket").pages({}))
    with pytest.raises(SourceMissingError, match="has no file named accounting"):
        list(source(tmp_path).pages({}))  # a folder without any accounting file


def test_permission_denied(file: Path) -> None:
    file.chmod(0)
    if os.geteuid() == 0:  # nothing is denied to root but what the system itself denies
        file = Path("/proc/1/mem")
    with pytest.raises(SourceError, match=r"permission denied|Input/output error"):
        list(source(file).pages({}))


def test_a_clock_in_the_future_is_reported(file: Path) -> None:
    log = LineSource("ge", "gridengine", source(file).reader, source(file)._make_parser, clock=lambda: 1_700_000_000.0)
    (finding,) = log.check()
    assert (finding.level, "the last in the future: 2027-01-15" in finding.message) == ("yellow", True)
    log = LineSource("ge", "gridengine", source(file).reader, source(file)._make_parser, clock=lambda: 1_900_000_000.0)
    (finding,) = log.check()
    assert finding.level == "green"
    (page,) = log.pages({})
    assert len(page.jobs) == 3


def test_check_says_that_nothing_is_understood(file: Path) -> None:
    file.write_bytes(b"what is this\n")
    assert "no line is understood" in source(file).check()[0].message
    assert source(file.with_name("nothing")).check()[0].level == "red"
