"""Source slurm running sacct: its arguments and environment, windows with an overlap, failures, time-outs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from formats.job import Job
from publisher.config import schema
from publisher.encoded_run import UsageNote, usage_note
from publisher.errors import SourceBusyError, SourceError, SourceFormatError
from publisher.sources.base import Window
from publisher.sources.slurm.sacct import COLUMNS, LONGEST_WINDOW_S, TEXTS
from publisher.sources.slurm.source import SlurmSource, is_program
from tests.publisher.sources.log_reading import Seen, read_on

T0 = 1_793_491_200
PROGRAM = """#!{python} -IS
# Like sacct of Slurm 22.05, it prints what users wrote as it is, and no steps with --allocations.
import calendar, json, os, sys, time
here = {here!r}
with open(here + "/calls", "a") as calls:
    shown = {{k: os.environ.get(k) for k in ("TZ", "SLURM_TIME_FORMAT", "SACCT_FORMAT")}}
    calls.write(json.dumps([sys.argv[1:], shown]) + "\\n")
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
stamp = lambda text: calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
begin, until = stamp(options["starttime"]), stamp(options["endtime"])
columns, by = options["format"].split(","), options["delimiter"]
mode = open(here + "/mode").read()
def write(text):  # as it is: the texts of users may hold anything, and bytes that are not UTF-8
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
if mode != "headless":
    write(by.join(columns) + "\\n")
for row in json.load(open(here + "/rows")):
    if "--allocations" in sys.argv and "." in row["JobIDRaw"]:
        continue
    if mode == "textless" and "--allocations" in sys.argv and row["JobIDRaw"] == "2":
        continue
    if (isinstance(row["Submit"], str) or row["Submit"] < until) and (row["End"] == "Unknown" or row["End"] >= begin):
        write(by.join(str(row.get(column, "")) for column in columns) + "\\n")
sys.stdout.flush()
if mode == "fail":
    sys.exit("sacct: error: slurmdbd: Connection refused")
if mode == "mutter":
    print("sacct: error: Problem talking to the database", file=sys.stderr)
if mode == "chatter":
    print("x" * 1_000_000, file=sys.stderr)
if mode == "hang":
    time.sleep(600)
if mode == "cut":
    write("9" + by)
    sys.stdout.flush()
"""


class Sacct:
    """A program in the place of sacct that prints rows kept in a file."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.path = place / "sacct"
        self.path.write_text(PROGRAM.format(python=sys.executable, here=str(place)), encoding="utf-8")
        self.path.chmod(0o755)
        self.mode("ok")
        self.rows()

    def mode(self, mode: str) -> None:
        (self.place / "mode").write_text(mode, encoding="utf-8")

    def rows(self, *rows: dict[str, object]) -> None:
        (self.place / "rows").write_text(json.dumps(rows), encoding="utf-8")

    def calls(self) -> list[tuple[list[str], dict[str, str]]]:
        text = (self.place / "calls").read_text(encoding="utf-8")
        return [tuple(json.loads(line)) for line in text.splitlines()]

    def windows(self) -> list[tuple[str, str]]:
        """The spans that were asked for; each is asked for twice, for texts and for numbers."""
        asked: list[tuple[str, str]] = [
            tuple(word.partition("=")[2] for word in call[0] if word.startswith(("--starttime", "--endtime")))  # type: ignore[misc]
            for call in self.calls()
        ]
        assert asked[::2] == asked[1::2]
        return asked[::2]


@pytest.fixture
def sacct(tmp_path: Path) -> Sacct:
    return Sacct(tmp_path)


def row(number: str, start: int, end: int | str, **more: object) -> dict[str, object]:
    return {
        "JobIDRaw": number, "JobID": number, "Cluster": "c1", "Submit": T0 + start, "Start": T0 + start,
        "End": end if isinstance(end, str) else T0 + end, "State": "RUNNING" if isinstance(end, str) else "COMPLETED",
        "NCPUS": 1, "NNodes": 1, "NodeList": "n1", "ExitCode": "0:0", **more,
    }  # fmt: skip


def source(sacct: Sacct, now: int, silent_s: float = 60.0, **more: object) -> SlurmSource:
    made = schema.SourceSettings.model_validate({"type": "slurm", "path": sacct.path, **more})
    return SlurmSource("slurm", made, clock=lambda: T0 + now, silent_s=silent_s)


def of_known_delimiter(sacct: Sacct) -> SlurmSource:
    settings = schema.SourceSettings(type="slurm", path=sacct.path)
    return SlurmSource("slurm", settings, clock=lambda: T0 + 100, new_delimiter=lambda: "\x1f!")


def ids(jobs: dict[str, Job]) -> list[str | None]:
    return [job.local_id for job in jobs.values()]


def test_arguments_and_environment(sacct: Sacct, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCT_FORMAT", "jobid")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    sacct.rows(row("1", 10, 20, JobName="a|b\nc"), row("1.batch", 10, 20, MaxRSS="2048", TotalCPU="00:05.000"))
    found = read_on(source(sacct, 100), Seen())
    (texts, environment), (numbers, _) = sacct.calls()
    for arguments in (texts, numbers):
        assert arguments[:4] == ["--allusers", "--duplicates", "--noconvert", "--parsable2"]
    (by,) = (word for word in texts if word.startswith("--delimiter"))
    assert re.fullmatch("--delimiter=\x1f[^\\w\\s\x1f%]{16}", by)
    assert by not in numbers
    assert environment == {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SACCT_FORMAT": None}
    (job,) = found.jobs.values()
    assert (job.name, job.memory_rss_kib, job.cpu_ms, job.start, job.end) == ("a|b\nc", 2, 5000, T0 + 10, T0 + 20)
    assert (found.cursor["until"], found.at_end) == (T0 + 100, True)


def test_the_sampled_cpu_time_of_a_step_is_asked_for(sacct: Sacct) -> None:
    usage = {"TotalCPU": "00:00:00", "TRESUsageInTot": "cpu=00:30:00,energy=0,mem=1000", "ElapsedRaw": 3600}
    sacct.rows(row("1", 10, 3610, TotalCPU="00:01.500"), row("1.0", 10, 3610, MaxRSS="2048", NCPUS=4, **usage))
    (job,) = read_on(source(sacct, 4000), Seen()).jobs.values()
    assert (job.cpu_ms, usage_note(job)) == (1_800_000, UsageNote.CPU_SAMPLED)


def test_the_numbers_are_asked_for_without_any_text_of_a_user(sacct: Sacct) -> None:
    """The answer that lists the runs cannot contain text of a user."""
    read_on(source(sacct, 100), Seen())
    asked = [set(word.partition("=")[2].split(",")) for call in sacct.calls() for word in call[0] if "format=" in word]
    texts, numbers = asked
    assert texts == {"JobIDRaw", "Cluster", "Account", "JobName", "Comment", "WCKey", "Submit"}
    assert not numbers & {"Account", "JobName", "Comment", "WCKey", "WorkDir", "SubmitLine", "Extra", "Container"}
    assert texts | numbers == set(COLUMNS)


def test_a_name_cannot_forge_a_run(sacct: Sacct) -> None:
    """A job name may hold line feeds and any delimiter that can be known before; what one reading used, too."""
    sacct.rows(row("1", 10, 20))
    read_on(source(sacct, 100), Seen())
    seen_before = [str(word).partition("=")[2] for call in sacct.calls() for word in call[0] if "delimiter" in word]
    for by in ("\x1f", *seen_before):
        forged = row("7", 10, 90_000, User="rival", NCPUS=4_096, JobName="x")
        begin = by.join(("x", "", "", "1", "COMPLETED"))
        end = by.join(str(forged.get(column, "")) for column in COLUMNS[: COLUMNS.index("JobName") + 1])
        sacct.rows(row("1", 10, 20, JobName=f"{begin}\n{end}"))
        (job,) = read_on(source(sacct, 100_000), Seen()).jobs.values()
        assert (job.local_id, job.name) == ("1", f"{begin}\n{end}")


def test_a_name_of_100_lines_hides_nothing(sacct: Sacct) -> None:
    name = "a" + "\n" * 100 + "b"
    sacct.rows(row("1", 10, 20, JobName=name), row("2", 10, 20, Comment=name, JobName="plain"), row("3", 10, 20))
    found = read_on(source(sacct, 100), Seen())
    assert [(job.local_id, job.name) for job in found.jobs.values()] == [("1", name), ("2", "plain"), ("3", None)]
    assert found.unreadable == []


def test_a_run_whose_texts_are_missing_is_listed_once_and_read_when_they_are_there(sacct: Sacct) -> None:
    """Never stored without its account; its steps count for no other run."""
    runs = [row("1", 10, 20), row("2", 10, 30, Account="a"), row("2.0", 10, 30, MaxRSS="9999"), row("4", 10, "Unknown")]
    sacct.rows(*runs, row("3", 10, 40))
    sacct.mode("textless")
    seen = Seen()
    for now in (100, 200, 300):
        read_on(source(sacct, now), seen)
    assert ids(seen.jobs) == ["1", "4", "3"]
    assert [job.memory_rss_kib for job in seen.jobs.values()] == [None] * 3
    assert len(seen.unreadable) == 3
    assert len({msgspec.json.encode(piece) for piece in seen.unreadable}) == 1, "the store keeps one of them"
    assert "no account and name" in seen.unreadable[0].reason
    assert seen.unreadable[0].raw.startswith(b"2|2|c1|")
    sacct.mode("ok")
    assert ids(read_on(source(sacct, 400), seen).jobs) == ["1", "4", "3", "2"]
    assert [each.raw for each in seen.recovered] == [seen.unreadable[0].raw], "it is no longer listed"
    read_on(source(sacct, 500), seen)
    assert len(seen.recovered) == 1


def test_a_record_that_cannot_be_read_is_listed_once(sacct: Sacct) -> None:
    """Its place and bytes are the same at each reading, also while the run goes on and others come before it."""
    sacct.rows(row("5", 10, 20, ExitCode="odd"), row("6", 10, "Unknown", State="?!", ElapsedRaw=5))
    seen = read_on(source(sacct, 100), Seen())
    assert len(seen.unreadable) == 2
    sacct.rows(row("1", 10, 20), row("5", 10, 20, ExitCode="odd"), row("6", 10, "Unknown", State="?!", ElapsedRaw=50))
    read_on(source(sacct, 200), seen)
    assert len(seen.unreadable) > 3
    assert len({msgspec.json.encode(piece) for piece in seen.unreadable}) == 2, "the store keeps one of each"
    assert {(piece.line, piece.offset) for piece in seen.unreadable} == {(None, None)}


@pytest.mark.parametrize(
    "odd",
    [{"Submit": text} for text in ("Unknown", "None", "", "N/A")]
    + [{"JobIDRaw": number, "JobID": number} for number in ("3+1", "3_2", "3_[1-5]", "")],
)
def test_a_record_without_ids_stops_only_its_own_run(sacct: Sacct, odd: dict[str, object]) -> None:
    """It is listed once; the runs before and after it are stored with their texts."""
    others = [row(number, 10, 60, JobName=f"name {number}") for number in ("1", "2")]
    sacct.rows(others[0], {**row("3", 10, 60, JobName="odd", Account="x"), **odd}, others[1])
    seen = Seen()
    for now in (100, 200):
        read_on(source(sacct, now), seen)
    assert [(job.local_id, job.name) for job in seen.jobs.values()] == [("1", "name 1"), ("2", "name 2")]
    assert len(seen.unreadable) == 2
    assert len({msgspec.json.encode(piece) for piece in seen.unreadable}) == 1, "the store keeps one of them"
    assert (seen.at_end, seen.cursor["until"]) == (True, T0 + 200)


def test_two_different_texts_for_a_job_stop_only_its_own_run(sacct: Sacct) -> None:
    sacct.rows(row("1", 10, 60, Account="a"), row("2", 10, 60, Account="a"), row("1", 10, 60, Account="b"))
    seen = read_on(source(sacct, 100), Seen())
    assert ids(seen.jobs) == ["2"]
    assert {piece.raw.partition(b"|")[0] for piece in seen.unreadable} == {b"1"}
    assert "two different ones" in seen.unreadable[0].reason


@pytest.mark.parametrize("column", ["Account", "JobName", "Comment", "WCKey"])
def test_a_guessed_delimiter_forges_nothing(tmp_path: Path, column: str) -> None:
    """Were the delimiter known, the numbers would not change, and the answer with the texts would not be used."""
    sacct = Sacct(tmp_path)
    victim = row("2", 10, 30, Account="victim", User="bob")
    forged = "\x1f!".join(["x", *[""] * (TEXTS.index("Submit") - TEXTS.index(column) - 1), f"{T0 + 10}\n2", "c1"])
    sacct.rows(row("1", 10, 20, **{column: forged}), victim)
    with pytest.raises(SourceFormatError, match="asks again"):
        read_on(of_known_delimiter(sacct), Seen())
    sacct.rows(row("1", 10, 20, **{column: "\x1f!"}), victim)
    with pytest.raises(SourceFormatError, match="fields where 7 were asked for"):
        read_on(of_known_delimiter(sacct), Seen())


def test_the_next_window_begins_an_overlap_before_the_end_of_the_last(sacct: Sacct) -> None:
    sacct.rows(row("1", 10, 7000))
    seen = read_on(source(sacct, 10_000, overlap="1h"), Seen())
    # this one ended before the end of the last window, and the database learned it later
    sacct.rows(row("1", 10, 7000), row("2", 10, 9000), row("3", 10, 10_500), row("4", 10, "Unknown"))
    read_on(source(sacct, 11_000, overlap="1h"), seen)
    assert sacct.windows()[1] == ("2026-11-01T01:46:40", "2026-11-01T03:03:20")
    assert ids(seen.jobs) == ["1", "2", "3", "4"]
    assert [job.status for job in seen.jobs.values()] == ["completed"] * 3 + ["running"]
    sacct.rows(row("4", 10, 12_000))
    read_on(source(sacct, 13_000, overlap="1h"), seen)
    assert seen.jobs["ur-slurm/c1/4/1793491210"].end == T0 + 12_000


def test_a_clock_that_is_set_back_a_little_reads_on(sacct: Sacct) -> None:
    """The publisher does not ask for all earlier runs again."""
    seen = read_on(source(sacct, 10_000, overlap="1h"), Seen())
    sacct.rows(row("1", 10, 9_500))
    read_on(source(sacct, 9_999, overlap="1h"), seen)
    assert sacct.windows()[1:] == [("2026-11-01T01:46:39", "2026-11-01T02:46:39")]
    assert ids(seen.jobs) == ["1"]
    assert seen.cursor == {"until": T0 + 9_999, "since": T0 + 9_999}


def test_a_cursor_in_the_future_begins_again_at_the_first_reading(sacct: Sacct) -> None:
    """The clock was 8 years ahead for one run: what ended since the first reading is read, in windows."""
    week, ahead = LONGEST_WINDOW_S, 8 * 365 * 86_400
    seen = Seen(cursor={"until": T0 + ahead, "since": T0 + 3_600})
    sacct.rows(row("1", 10, 20), row("2", week, week + 20))
    made = source(sacct, week + 7_200, overlap="1h")
    read_on(made, seen)
    assert sacct.windows() == [
        ("2026-11-01T00:00:00", "2026-11-08T00:00:00"),
        ("2026-11-08T00:00:00", "2026-11-08T02:00:00"),
    ]
    assert ids(seen.jobs) == ["1", "2"]
    assert seen.cursor == {"until": T0 + week + 7_200, "since": T0 + 3_600}


def test_a_first_reading_in_the_future_begins_at_complete_since(sacct: Sacct) -> None:
    ahead = T0 + 8 * 365 * 86_400
    seen = Seen(cursor={"until": ahead, "since": ahead})
    sacct.rows(row("1", 10, 20))
    read_on(source(sacct, 7_200, complete_since="2026-11-01"), seen)
    assert sacct.windows() == [("2026-11-01T00:00:00", "2026-11-01T02:00:00")]
    assert ids(seen.jobs) == ["1"]
    assert seen.cursor == {"until": T0 + 7_200, "since": T0 + 7_200}


def test_a_long_time_is_asked_for_in_pieces_and_each_run_is_given_once(sacct: Sacct) -> None:
    week = LONGEST_WINDOW_S
    sacct.rows(row("1", 10, 20), row("2", 30, week + 30), row("3", 2 * week, 2 * week + 20))
    made = source(sacct, 2 * week + 100, complete_since="2026-11-01")
    jobs = [job.local_id for page in made.pages({}) for job in page.jobs]
    assert jobs == ["1", "2", "3"]
    assert [begin for begin, _ in sacct.windows()] == [
        "2026-11-01T00:00:00",
        "2026-11-08T00:00:00",
        "2026-11-15T00:00:00",
    ]


def test_a_window_reads_again_and_leaves_the_cursor(sacct: Sacct) -> None:
    sacct.rows(row("1", 10, 20), row("2", 10, 50), row("3", 10, 80))
    pages = list(source(sacct, 1000).pages({"until": 5}, Window(T0 + 30, T0 + 80)))
    assert [job.local_id for page in pages for job in page.jobs] == ["2"]
    assert [page.cursor for page in pages] == [{"until": 5}] * len(pages)
    assert pages[-1].at_end


@pytest.mark.parametrize(
    ("mode", "error", "message"),
    [
        ("fail", SourceError, "exit code 1: sacct: error: slurmdbd: Connection refused"),
        ("mutter", SourceError, "Problem talking to the database"),
        ("cut", SourceFormatError, "in the middle of a line"),
        ("headless", SourceFormatError, "did not print the header"),
    ],
)
def test_a_failure_leaves_the_cursor_where_it_was(
    sacct: Sacct, mode: str, error: type[SourceError], message: str
) -> None:
    seen = read_on(source(sacct, 100), Seen())
    before = dict(seen.cursor)
    sacct.mode(mode)
    with pytest.raises(error, match=message):
        read_on(source(sacct, 200), seen)
    assert seen.cursor == before
    sacct.mode("ok")
    sacct.rows(row("1", 110, 150))
    assert ids(read_on(source(sacct, 300), seen).jobs) == ["1"]


def test_what_is_silent_for_too_long_is_ended(sacct: Sacct) -> None:
    sacct.mode("hang")
    with pytest.raises(SourceBusyError, match=r"printed nothing for 0\.5 s"):
        read_on(source(sacct, 100, silent_s=0.5), Seen())


def test_much_on_standard_error_does_not_stop_it(sacct: Sacct) -> None:
    sacct.mode("chatter")
    sacct.rows(*[row(str(number), 10, 20) for number in range(1, 3001)])
    assert len(read_on(source(sacct, 100), Seen()).jobs) == 3000


def test_what_is_a_program(sacct: Sacct, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_text("JobID|Start|End\n1|10|20\n", encoding="utf-8")
    saved.chmod(0o755)
    assert (is_program(sacct.path), is_program(saved), is_program(tmp_path)) == (True, False, False)
    assert ids(read_on(SlurmSource("slurm", schema.SourceSettings(type="slurm", path=saved)), Seen()).jobs) == ["1"]


def test_the_program_is_found_on_path(sacct: Sacct) -> None:
    environ = {"PATH": f"{sacct.place}{os.pathsep}{os.environ['PATH']}"}
    assert SlurmSource("slurm", schema.SourceSettings(type="slurm"), environ=environ).path == sacct.path


@pytest.mark.parametrize(
    ("prepare", "level"),
    [
        (lambda sacct: sacct.rows(row("1", 10, 20)), "green"),
        (lambda sacct: sacct.rows(), "yellow"),
        (lambda sacct: sacct.mode("fail"), "red"),
    ],
)
def test_check(sacct: Sacct, prepare: Callable[[Sacct], None], level: str) -> None:
    prepare(sacct)
    assert [finding.level for finding in source(sacct, 100).check()] == [level]


def test_complete_since_the_first_reading_unless_configured(sacct: Sacct) -> None:
    first = source(sacct, 100)
    seen = read_on(first, Seen())
    later = source(sacct, 500)
    read_on(later, seen)
    assert (first.complete_since(), later.complete_since()) == (T0 + 100, T0 + 100)
    assert source(sacct, 500, complete_since="2026-11-01").complete_since() == T0
