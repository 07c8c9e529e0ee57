"""Records that a line feed in a user's text breaks: put together, or what their lines seem where no rest comes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from publisher.config import schema
from publisher.sources.base import Window
from publisher.sources.dqs import DqsParser, DqsSource
from publisher.sources.gridengine.source import GridEngineParser, GridEngineSource
from publisher.sources.limits import SHORTENED
from publisher.sources.logs.broken_record import MAX_HELD_BYTES, RecordJoiner
from publisher.sources.logs.line_parser import LineHolder, LineParser
from publisher.sources.pbs.jobs import PBS, TORQUE
from publisher.sources.pbs.source import PbsParser, TorqueSource
from tests.publisher.sources.log_reading import Seen, read_on

AT = "11/01/2026 00:00:10"
START, END = 1_793_491_110, 1_793_491_210


def record(number: int, account: str, *, start: int = START - 100, end: int = START - 90, head: str = AT) -> str:
    return (
        f"{head};E;{number}.s;user=u{number} group=g account={account} jobname=n queue=q ctime={start} qtime={start} "
        f"etime={start} start={start} owner=u{number}@h exec_host=n1/0 Resource_List.walltime=01:00:00 session=1 "
        f"end={end} Exit_status=0 resources_used.cput=00:00:01 resources_used.walltime=00:00:10\n"
    )


def read(path: Path, content: str, cursor: dict[str, object] | None = None) -> Seen:
    path.write_text(content, encoding="utf-8")
    source = TorqueSource("t", schema.SourceSettings(type="torque", path=path, timezone="UTC"))
    return read_on(source, Seen(cursor=cursor or {}))


def ids(seen: Seen) -> list[str]:
    return [str(job.local_id) for job in seen.jobs.values()]


def broken(number: int, account: str) -> str:
    """A record that the server wrote at its end, 00:00:10."""
    return record(number, account, start=1_793_491_200, end=1_793_491_210)


def test_a_record_in_several_lines_is_one(tmp_path: Path) -> None:
    seen = read(tmp_path / "log", broken(1, "a\nb\n\nc") + broken(2, "x"))
    assert ids(seen) == ["1", "2"]
    assert [job.account for job in seen.jobs.values()] == ["a\nb\n\nc", "x"]
    assert seen.unreadable == []


def test_a_record_inside_another_is_not_a_record(tmp_path: Path) -> None:
    seen = read(tmp_path / "log", broken(1, f"a\n{broken(7, 'x')}b") + broken(2, "x"))
    assert ids(seen) == ["2"]
    listed, inner = seen.unreadable
    assert (inner.line, inner.suspect and inner.suspect.local_id) == (2, "7"), "held: the first may also be cut off"
    assert (listed.line, listed.offset) == (1, 0)
    assert listed.raw.startswith(b"11/01/2026 00:00:10;E;1.s;user=u1 group=g account=a\n")
    assert "has 3 lines" in listed.reason


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    torn = broken(1, "a")
    content = torn[: torn.index(" jobname")] + "\n" + record(2, "x") + record(3, "x")
    seen = read(tmp_path / "log", content)
    assert ids(seen) == ["2", "3"]
    assert [(each.line, each.offset) for each in seen.unreadable] == [(1, 0)]


def test_lines_between_two_damaged_ones_are_held(tmp_path: Path) -> None:
    """They are not read as text of a record, since the damaged ones are hours apart; but a user may have made them."""
    torn = broken(1, "a")
    other = record(4, "x")
    content = torn[: torn.index(" jobname")] + "\n" + broken(2, "x") + other[other.index(" queue=") :] + broken(3, "x")
    seen = read(tmp_path / "log", content)
    assert ids(seen) == ["3"]
    assert [each.suspect.local_id for each in seen.unreadable if each.suspect] == ["2"]


def test_a_line_torn_in_a_text_holds_no_jobs_of_others(tmp_path: Path) -> None:
    """A full disk tore it, and many jobs end in the same second."""
    torn = broken(1, "a")
    others = [broken(number, "x") for number in range(2, 400)]
    seen = read(tmp_path / "log", torn[: torn.index(" queue=")] + "\n" + "".join(others))
    assert (len(seen.jobs), [each.line for each in seen.unreadable]) == (398, [1])


def test_the_owner_may_be_between_and_a_cut_line_may_be_text(tmp_path: Path) -> None:
    """The text after the owner has the beginning of another record, to which the true end is added."""
    whole = broken(1, "a")
    first, rest = whole[: whole.index(" queue=")], whole[whole.index(" queue=") :]
    owner, end = rest.split(" Resource_List")
    forged = broken(7, "x").partition(" session=")[0].replace(" Resource_List.walltime=01:00:00", "")
    seen = read(
        tmp_path / "log", f"{first}\nx{owner}\n{forged} session=1{end.partition(' session=1')[2]}{broken(2, 'x')}"
    )
    assert "7" not in ids(seen)
    cut = f"{AT};E;50.s;user=zoe{AT};S;7.s;user=z"
    begin = f"{AT};E;8.s;user=zoe jobname=x"
    assert "8" not in ids(read(tmp_path / "log", f"{first}\n{cut}\n{begin}{rest}{broken(2, 'x')}"))


def test_memory_is_bounded_and_nothing_is_lost(tmp_path: Path) -> None:
    torn = broken(1, "a")
    torn = torn[: torn.index(" jobname")] + "\n"
    many = 3 * MAX_HELD_BYTES // len(broken(100, "x"))
    lines = [broken(100 + number, "x").replace(f"owner=u{100 + number}", "owner=u1") for number in range(many)]
    seen = read(tmp_path / "log", torn + "".join(torn + line for line in lines))
    held = {each.suspect.local_id for each in seen.unreadable if each.suspect is not None}
    assert (len(seen.jobs), len(held)) == (0, many)
    assert [each.line for each in seen.unreadable if each.suspect is None] == [1, *range(2, 2 + 2 * many, 2)]


def test_between_two_pages_and_in_a_window(tmp_path: Path) -> None:
    """The lines that are held travel in the cursor."""
    before = "".join(record(1000 + number, "x") for number in range(2_500))
    whole = before + broken(1, "a jobname=x\n" + "b\n" * 50_000 + "c") + broken(2, "x")
    path = tmp_path / "log"
    path.write_text(whole, encoding="utf-8")
    source = TorqueSource("t", schema.SourceSettings(type="torque", path=path, timezone="UTC"))
    cursors = [json.loads(json.dumps(dict(page.cursor))) for page in source.pages({})]
    assert any('"held"' in json.dumps(cursor) for cursor in cursors)
    for cursor in cursors[:-1]:
        seen = read_on(source, Seen(cursor=cursor))
        assert ids(seen)[-2:] == ["1", "2"], "from wherever reading went on"
        assert seen.unreadable == []
        assert seen.jobs[f"ur-torque/s/1/{START + 90}"].extras[SHORTENED] == "name (100013 characters)"
    (page,) = [page for page in source.pages({}, Window(1_793_491_210)) if page.jobs]
    assert [job.local_id for job in page.jobs] == ["1", "2"]


def test_grid_engine(tmp_path: Path) -> None:
    def line(number: int, name: str) -> str:
        zeros = ":".join(["0"] * 15)
        return (
            f"q:h:g:u{number}:{name}:{number}:sge:0:1800000000:1800000010:1800000110:0:0:100:1.0:1.0:{zeros}:NONE:d:"
            "NONE:1:0:1.5:0:0:NONE:0.0:NONE:3231744.0:0:0\n"
        )

    path = tmp_path / "accounting"
    path.write_text(line(1, "a\nb") + line(2, f"a\n{line(7, 'x')}b") + line(3, "x"), encoding="utf-8")
    seen = read_on(GridEngineSource("ge", schema.SourceSettings(type="gridengine", path=path)), Seen())
    assert [(job.local_id, job.name) for job in seen.jobs.values()] == [("1", "a\nb"), ("3", "x")]
    assert [(each.line, each.suspect and each.suspect.local_id) for each in seen.unreadable] == [(3, None), (4, "7")]


def test_dqs(tmp_path: Path) -> None:
    def line(number: int, name: str) -> str:
        numbers = ":".join(["0"] * 18)
        return f"q:h:1:aix:g:u{number}:{name}:DQS.{number}:{number}:1000000001:1000000008:1000000016:0:{numbers}\n"

    path = tmp_path / "act_file"
    path.write_text(line(1, "a\nb") + line(2, f"a\n{line(7, 'x')}b") + line(3, "x"), encoding="utf-8")
    seen = read_on(DqsSource("dqs", schema.SourceSettings(type="dqs", path=path)), Seen())
    assert [(job.local_id, job.name) for job in seen.jobs.values()] == [("1", "a\nb"), ("3", "x")]
    assert [(each.line, each.suspect and each.suspect.local_id) for each in seen.unreadable] == [(3, None), (4, "7")]


@pytest.mark.parametrize("line", [b"cut", b"end"])
def test_many_cut_lines_are_looked_at_in_proportion_to_their_number(line: bytes) -> None:
    """A user can write them: the search for the end of the first in all of the others would be quadratic."""
    looks = 0

    def may_end(_first: bytes, line: bytes) -> bool:
        nonlocal looks
        looks += 1
        return line == b"end"

    def is_open(_first: bytes, lines: Iterator[bytes]) -> bool:
        nonlocal looks
        looks += sum(1 for _ in lines)
        return False

    joiner = RecordJoiner(
        lambda line: joiner.refused(line, "cut", cut=True),
        lambda _first, _line: False,
        may_end=may_end,
        is_open=is_open,
    )
    count = 2 * MAX_HELD_BYTES // (len(line) + 1)
    joiner.refused(line, "cut", cut=True)
    refused = sum(len(outcome) for _ in range(count - 1) if isinstance(outcome := joiner.take(line), list))
    assert refused + len(joiner.release()) == count
    assert looks <= 20 * count


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: GridEngineParser("c"), b"a:b:c"),
        (lambda: DqsParser("c"), b"a:b:c"),
        (lambda: PbsParser(TORQUE, "UTC", None), f"{AT};E;1.s;user=u account=a".encode()),
        (lambda: PbsParser(PBS, "UTC", None), f"{AT};E;1.s;user=u account=a start=5 queue=q end=5".encode()),
    ],
)
def test_many_cut_lines_take_calls_in_proportion(make: Callable[[], LineParser], line: bytes) -> None:
    def calls_for(lines: int) -> int:
        calls, parser, before = 0, make(), sys.getprofile()

        def count(_frame: object, _event: str, _argument: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            for _ in range(lines):
                parser.parse(line)
            assert isinstance(parser, LineHolder)
            outcomes = parser.release()
        finally:
            sys.setprofile(before)
        assert len(outcomes) == lines
        return calls

    assert calls_for(1_000) < 5 * calls_for(250)
