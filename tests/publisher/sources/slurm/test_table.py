"""Source slurm: tables that lack columns, and texts in them that hold delimiters and line feeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.config import schema
from publisher.errors import SourceFormatError
from publisher.sources.base import UnreadableLine
from publisher.sources.slurm.parser import SlurmParser
from publisher.sources.slurm.sacct import COLUMNS
from publisher.sources.slurm.source import SlurmSource
from tests.publisher.sources.log_reading import Seen, read_on
from tests.publisher.sources.saved_reading import parse_to_end


def source(path: Path, **more: object) -> SlurmSource:
    return SlurmSource("slurm", schema.SourceSettings.model_validate({"type": "slurm", "path": path, **more}))


def parser() -> SlurmParser:
    return SlurmParser("c1", "UTC")


ROWS = "".join(f"{n}|2026-11-01T00:00:00|2026-11-01T01:00:00|COMPLETED|job{n}\n" for n in (7, 8, 9))


@pytest.mark.parametrize(
    ("header", "rows", "lacks"),
    [
        ("JobID|Start|State|JobName", ROWS.replace("|2026-11-01T01:00:00", ""), "column End"),
        ("JobID|State|JobName", "7|COMPLETED|a\n8|FAILED|b\n", "columns Start, End"),
    ],
)
def test_a_table_that_lacks_columns_is_refused_once(tmp_path: Path, header: str, rows: str, lacks: str) -> None:
    """Not line by line; the error has the command that writes what is needed, and a complete table fixes it."""
    file = tmp_path / "sacct.psv"
    file.write_text(f"{header}\n{rows}")
    seen = Seen()
    with pytest.raises(SourceFormatError, match=f"sacct.psv: the table has no {lacks}: no job can be made") as reported:
        read_on(source(file), seen)
    assert "sacct --allusers --duplicates --noconvert --parsable2 --starttime=" in reported.value.hint, (
        "else only today"
    )
    assert (seen.jobs, seen.unreadable) == ({}, [])
    (finding, *_) = source(file).check()
    assert (finding.level, "the table has no" in finding.message) == ("red", True)
    file.write_text(f"JobID|Start|End|State|JobName\n{ROWS}")
    assert len(read_on(source(file), seen).jobs) == 3


def test_a_folder_with_such_a_table_gives_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.psv").write_text("JobID|State|JobName\n7|COMPLETED|a\n")
    (tmp_path / "b.psv").write_text(f"JobID|Start|End|State|JobName\n{ROWS}")
    seen = Seen()
    with pytest.raises(SourceFormatError, match="columns Start, End"):
        read_on(source(tmp_path), seen)
    assert {job.name for job in seen.jobs.values()} == {"job7", "job8", "job9"}


def test_a_later_header_never_replaces_one_that_lines_still_fit(tmp_path: Path) -> None:
    """Else one user's text would hide all later jobs of everyone."""
    file = tmp_path / "sacct.psv"
    second = "JobID|Submit|Start|State|JobName\n" + ROWS.replace("7|", "17|").replace("8|", "18|")
    file.write_text(f"JobID|Start|End|State|JobName\n{ROWS}{second}")
    seen = read_on(source(file), Seen())
    assert {job.local_id for job in seen.jobs.values()} == {"7", "8", "9", "17", "18"}
    (header,) = seen.unreadable
    assert (header.line, header.raw) == (5, b"JobID|Submit|Start|State|JobName")
    assert "the lines after it fit the first header" in header.reason


def test_the_rest_of_a_name_in_the_last_column_is_called_so(tmp_path: Path) -> None:
    """The run is read; the text after the line feed is not a torn record, wherever it comes."""
    file = tmp_path / "sacct.psv"
    file.write_text(
        "JobID|Start|End|State|JobName\n" + ROWS.replace("job7\n", "two\nlines\n").replace("job9\n", "a\nb\nc\n")
    )
    seen = read_on(source(file), Seen())
    assert {job.name for job in seen.jobs.values()} == {"two", "job8", "a"}
    assert [one.raw for one in seen.unreadable] == [b"lines", b"b\nc"]
    for one in seen.unreadable:
        assert one.reason.startswith("is probably the rest of the JobName of the job before, after a line feed")
        assert one.reason.endswith("let sacct write State last")


def recommended(**fields: str) -> bytes:
    """A row of the recommended columns, with the delimiter that sacct has by itself."""
    row = {
        "JobIDRaw": "5", "JobID": "5", "Cluster": "c1", "User": "alice", "Account": "a", "Submit": "5", "Start": "10",
        "End": "20", "ElapsedRaw": "10", "NCPUS": "4", "State": "COMPLETED", "DBIndex": "7",
        "ExitCode": "0:0", **fields,
    }  # fmt: skip
    return "|".join(row.get(column, "") for column in COLUMNS).encode()


def test_texts_that_cannot_be_split_are_omitted_and_named() -> None:
    """JobName, Comment and WCKey are side by side: the numbers are certain, where the name ends is not."""
    header = "|".join(COLUMNS).encode()
    (job,) = parse_to_end(parser(), [header, recommended(JobName="a|b", Comment="c")]).jobs.values()
    assert (job.name, job.account, job.cores, job.start, job.end) == (None, "a", 4, 10, 20)
    assert job.extras["ambiguous_columns"] == "JobName, Comment, WCKey"
    assert "Comment" not in job.extras
    (plain,) = parse_to_end(parser(), [header, recommended(JobName="a", Comment="c")]).jobs.values()
    assert (plain.name, plain.extras["Comment"], "ambiguous_columns" in plain.extras) == ("a", "c", False)


@pytest.mark.parametrize(
    "column", ["NCPUS", "NNodes", "AllocTRES", "MaxRSS", "UserCPU", "ReqMem", "UID", "Submit", "Suspended", "NodeList"]
)
def test_a_field_that_is_not_of_its_column_makes_the_row_unreadable(column: str) -> None:
    """As when columns are shifted and their number is right by chance."""
    header = "|".join(COLUMNS).encode()
    found = parse_to_end(parser(), [header, recommended(**{column: "a text"}), recommended(JobIDRaw="6", JobID="6")])
    assert [job.local_id for job in found.jobs.values()] == ["6"]
    outcome = parser_after(header).parse(recommended(**{column: "a text"}))
    assert isinstance(outcome, UnreadableLine)
    assert f"{column} does not have its form" in outcome.reason


def parser_after(header: bytes) -> SlurmParser:
    """A parser that has read a header."""
    made = parser()
    made.parse(header)
    return made


@pytest.mark.parametrize("lines", [65, 1_000, 60_000])
def test_a_name_of_many_lines_is_one_name(lines: int) -> None:
    header = "|".join(COLUMNS).encode()
    name = "a" + "\n" * lines + "b"
    found = parse_to_end(parser(), [header, *recommended(JobName=name).split(b"\n")])
    assert [job.name for job in found.jobs.values()] == [name]
    log = (
        b"JobId=7 UserId=alice(1) GroupId=g(2) Name=" + name.encode() + b" JobState=COMPLETED Partition=p TimeLimit=5 "
        b"StartTime=2026-11-01T00:00:05 EndTime=2026-11-01T00:00:09 NodeList=n1 NodeCnt=1 ProcCnt=8 WorkDir=/ "
    )
    assert [job.name for job in parse_to_end(parser(), log.split(b"\n")).jobs.values()] == [name]


def test_a_table_is_not_a_log_and_a_log_is_not_a_table(tmp_path: Path) -> None:
    """A line that looks like a record of the other form was written by a user, after a record that ends in a user's
    text."""
    forged = LOG_RECORD.replace("JobId=7", "JobId=8")
    (tmp_path / "table").write_text(f"JobID|Start|End|State|JobName\n5|10|20|COMPLETED|x\n{forged}\n6|10|20|FAILED|y\n")
    (tmp_path / "log").write_text(f"{LOG_RECORD}\nJobID|Start|End|State\n9|10|20|COMPLETED\n{forged}\n")
    seen = read_on(source(tmp_path, cluster="c1"), Seen())
    assert sorted(str(job.local_id) for job in seen.jobs.values()) == ["5", "6", "8"]
    assert [piece.suspect.local_id for piece in seen.unreadable if piece.suspect] == ["7"]
    assert len(seen.unreadable) == 4


@pytest.mark.parametrize("other", ["JobID|End|Start|State|JobName", "JobID|Start|End|State|NCPUS|JobName"])
def test_after_a_text_at_the_end_of_a_row_another_header_is_not_believed(tmp_path: Path, other: str) -> None:
    """Rows that fit the first header are read by that. The other one is listed."""
    file = tmp_path / "sacct.psv"
    file.write_text(f"JobID|Start|End|State|JobName\n5|10|20|COMPLETED|x\n{other}\n6|10|20|FAILED|y\n")
    seen = read_on(source(file, cluster="c1"), Seen())
    with file.open("a") as stream:
        stream.write("7|10|20|FAILED|z\n")
    read_on(source(file, cluster="c1"), seen)
    assert [job.local_id for job in seen.jobs.values()] == ["5", "6", "7"]
    assert len(seen.unreadable) == 1
    assert "looks like a header of other columns" in seen.unreadable[0].reason


LOG_RECORD = (
    "JobId=7 UserId=alice(1) GroupId=g(2) Name=x JobState=COMPLETED Partition=p TimeLimit=5 "
    "StartTime=2026-11-01T00:00:05 EndTime=2026-11-01T00:00:09 NodeList=n1 NodeCnt=1 ProcCnt=8 WorkDir=/a "
    "ReservationName= Tres=cpu=8 Account=a QOS=normal WcKey= Cluster=c1 SubmitTime=2026-11-01T00:00:00 "
    "EligibleTime=2026-11-01T00:00:00 DerivedExitCode=0:0 ExitCode=0:0 "
)


def test_a_folder_cannot_end_a_record_of_the_completion_log() -> None:
    """Older versions end a record with the folder and a blank; in a log of another version that is of the folder."""
    lines = [LOG_RECORD, *LOG_RECORD.replace("JobId=7", "JobId=8").replace("WorkDir=/a", "WorkDir=/a \n b").split("\n")]
    found = parse_to_end(parser(), [line.encode() for line in lines])
    assert [(job.local_id, job.account) for job in found.jobs.values()] == [("7", "a"), ("8", "a")]


def test_the_part_before_a_change_of_size_has_no_start_in_the_completion_log() -> None:
    """Slurm 22.05 writes the time of the change as its start and its end. Nothing of it is guessed."""
    first = LOG_RECORD.replace("COMPLETED", "RESIZING").replace("00:00:05", "00:00:09")
    second = LOG_RECORD.replace("00:00:09", "00:00:15").replace("00:00:05", "00:00:09")
    outcome = parser().parse(first.encode())
    assert isinstance(outcome, UnreadableLine)
    assert "the job was resized" in outcome.reason
    found = parse_to_end(parser(), [first.encode(), second.encode()])
    assert [(job.start, job.end) for job in found.jobs.values()] == [(1793491209, 1793491215)]


@pytest.mark.parametrize("elapsed", ["1500", ""])
def test_a_run_in_the_repeated_hour_begins_after_its_submission(elapsed: str) -> None:
    """Submitted at 02:50, before the clock is set back; started at 02:30 of the second hour. It was not resized."""
    row = recommended(
        Submit="2026-10-25T02:50:00", Start="2026-10-25T02:30:00", End="2026-10-25T02:55:00", ElapsedRaw=elapsed
    )
    (job,) = parse_to_end(SlurmParser("c1", "Europe/Oslo"), ["|".join(COLUMNS).encode(), row]).jobs.values()
    assert (job.submit, job.start, job.end, job.wall_ms) == (1792889400, 1792891800, 1792893300, 1_500_000)


def test_an_incomplete_record_is_no_longer_listed_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "sacct.psv"
    begin = "JobID|Start|End|JobName|State\n5|10|20|a name"
    file.write_text(f"{begin}\n")
    seen = read_on(source(file, cluster="c1"), Seen())
    (piece,) = seen.unreadable
    assert (piece.line, piece.raw) == (2, b"5|10|20|a name")
    file.write_text(f"{begin}\nof two lines|COMPLETED\n6|10|20|b|COMPLETED\n")
    read_on(source(file, cluster="c1"), seen)
    assert [job.name for job in seen.jobs.values()] == ["a name\nof two lines", "b"]
    assert [each.raw for each in seen.recovered] == [piece.raw]


def test_rows_under_a_header_in_a_text_are_held_when_the_first_header_fits_again(tmp_path: Path) -> None:
    """One user's comment ends the record, has a header, and a row of another user with 999 cores."""
    file = tmp_path / "sacct.psv"
    header = "JobID|User|Start|End|NCPUS|Comment|State"
    comment = "x|COMPLETED\nJobID|User|Start|End|NCPUS\n7|ada|10|20|999\n"
    rows = [f"{number}|ada|10|20|2||COMPLETED" for number in (11, 12)]
    file.write_text("\n".join([header, f"5|eve|10|20|2|{comment}|COMPLETED", *rows, ""]))
    seen = read_on(source(file, cluster="c1"), Seen())
    assert [job.local_id for job in seen.jobs.values()] == ["11", "12"]
    assert [(piece.line, piece.suspect.local_id) for piece in seen.unreadable if piece.suspect] == [(2, "5"), (4, "7")]


def test_refused_pieces_keep_their_line_and_text(tmp_path: Path) -> None:
    file = tmp_path / "sacct.psv"
    lines = [
        "JobID|Start|End|JobName|State",
        "5|10|20|a|COMPLETED",
        "7|10|20|cut",
        "8|10|20|cut too",
        "9|10|20|b|FAILED",
    ]
    file.write_text("\n".join([*lines, ""]))
    seen = read_on(source(file, cluster="c1"), Seen())
    found = [(piece.line, piece.raw.decode(), piece.offset) for piece in seen.unreadable if piece.suspect is None]
    text = file.read_text()
    assert found == [(number, lines[number - 1], text.index(lines[number - 1])) for number in (3, 4)]
