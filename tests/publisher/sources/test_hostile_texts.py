"""Hostile texts of one user in the logs of every batch system that escapes nothing: no job of another user is made up,
changed, or lost. Jobs near such a text are held as suspect, and shown.

What a user writes up to the end of a whole record is left out: `docs/reference/sources` say so of each source.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from formats.job import Job
from publisher.config import schema
from publisher.sources import make_source
from publisher.sources.base import Unreadable
from publisher.sources.logs.broken_record import MAX_HELD_BYTES
from publisher.sources.logs.reader import MAX_LINE_BYTES

FIRST: Final = 1_795_000_000
CASES: Final = 150
STEP_S: Final = 400


class Submitted(msgspec.Struct, frozen=True):
    """A job as its user submits it: number, user, start, and the texts that the user chooses."""

    number: int
    user: str
    start: int
    name: str = "ok"
    account: str = ""
    request: str = ""

    @property
    def end(self) -> int:
        return self.start + 100


def stamp(at: int) -> str:
    return time.strftime("%m/%d/%Y %H:%M:%S", time.gmtime(at))


def iso(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def torque(job: Submitted) -> list[tuple[int, str]]:
    account = f" account={job.account}" if job.account else ""
    request = f" Resource_List.software={job.request}" if job.request else ""
    both = (
        f"user={job.user} group=g{account} jobname={job.name} queue=batch ctime={job.start - 9} qtime={job.start - 9} "
        f"etime={job.start - 9} start={job.start} owner={job.user}@h exec_host=n1/0+n1/1 Resource_List.nodes=1"
        f"{request} Resource_List.walltime=01:00:00"
    )
    used = f"session=1 end={job.end} Exit_status=0 resources_used.cput=00:01:00 resources_used.walltime=00:01:40"
    return [
        (job.start, f"{stamp(job.start)};S;{job.number}.srv;{both} "),
        (job.end, f"{stamp(job.end)};E;{job.number}.srv;{both} {used}"),
    ]


def pbs(job: Submitted) -> list[tuple[int, str]]:
    request = f"Resource_List.software={job.request} " if job.request else ""
    both = (
        f'user={job.user} group=g account="{job.account or "x"}" project=p jobname={job.name} queue=workq '
        f"ctime={job.start - 9} qtime={job.start - 9} etime={job.start - 9} start={job.start} exec_host=n1/0*2 "
        f"exec_vnode=(n1:ncpus=2) Resource_List.ncpus=2 {request}Resource_List.walltime=01:00:00"
    )
    used = f"session=1 end={job.end} Exit_status=0 resources_used.cput=00:01:00 resources_used.ncpus=2 run_count=1"
    return [
        (job.start, f"{stamp(job.start)};S;{job.number}.srv;{both}"),
        (job.end, f"{stamp(job.end)};E;{job.number}.srv;{both} {used}"),
    ]


def gridengine(job: Submitted) -> list[tuple[int, str]]:
    request = f" -l arch={job.request}" if job.request else ""
    line = (
        f"main.q:h:g:{job.user}:ok:{job.number}:sge:0:{job.start - 9}:{job.start}:{job.end}:0:0:100:50.0:10.0:5000.0:0:"
        f"0:0:0:100:0:0:0.0:8:0:0:0:10:3:NONE:d:NONE:2:0:60.0:0.001:0.0:-q main.q{request}:0.0:NONE:1000.0:0:0"
    )
    return [(job.end, line)]


def jobcomp(job: Submitted) -> list[tuple[int, str]]:
    line = (
        f"JobId={job.number} UserId={job.user}(1) GroupId=g(1) Name={job.name} JobState=COMPLETED Partition=debug "
        f"TimeLimit=60 StartTime={iso(job.start)} EndTime={iso(job.end)} NodeList=n1 NodeCnt=1 ProcCnt=2 "
        f"WorkDir={job.request or '/tmp'} ReservationName= Tres=cpu=2,node=1 Account=a QOS=normal WcKey= Cluster=c "
        f"SubmitTime={iso(job.start - 9)} "
        f"EligibleTime={iso(job.start - 9)} DerivedExitCode=0:0 ExitCode=0:0 "
    )
    return [(job.end, line)]


HEADER: Final = "JobIDRaw|JobID|Cluster|User|Submit|Start|End|ElapsedRaw|TotalCPU|NCPUS|NodeList|JobName|Comment|State"


def sacct(job: Submitted) -> list[tuple[int, str]]:
    times = f"{iso(job.start - 9)}|{iso(job.start)}|{iso(job.end)}"
    line = f"{job.number}|{job.number}|c|{job.user}|{times}|100|00:01:00|2|n1|{job.name}|{job.request}|COMPLETED"
    return [(job.end, line)]


def apel(job: Submitted) -> list[tuple[int, str]]:
    """The columns of the APEL client, which writes no header."""
    times = f"{iso(job.start)}|{iso(job.end)}|00:01:40|00:01:00"
    return [(job.end, f"{job.number}|{job.name}|{job.user}|g|{times}|p|2|1|n1|||COMPLETED")]


def dqs(job: Submitted) -> list[tuple[int, str]]:
    numbers = f"{job.number}:{job.start - 9}:{job.start}:{job.end}:0:{':'.join('0' * 18)}"
    return [(job.end, f"q:h:1:{job.request}:g:{job.user}:{job.name}:d{job.number}:{numbers}")]


Form = Callable[[Submitted], list[tuple[int, str]]]
FORMS: Final[dict[str, tuple[Form, str, tuple[str, ...]]]] = {
    "torque": (torque, "torque", ("name", "account", "request")),
    "pbs": (pbs, "pbs", ("name", "account", "request")),
    "gridengine": (gridengine, "gridengine", ("request",)),
    "jobcomp": (jobcomp, "slurm", ("name", "request")),
    "sacct": (sacct, "slurm", ("name", "request")),
    "apel": (apel, "slurm", ("name",)),
    "dqs": (dqs, "dqs", ("name", "request")),
}
"""By name: the form of a job, the type of its source, and the texts that a user chooses."""


class ReadLog(msgspec.Struct):
    """What was read of a log."""

    jobs: dict[str, Job]
    unreadable: list[Unreadable]

    @property
    def suspects(self) -> dict[str, Job]:
        return {piece.suspect.record_id: piece.suspect for piece in self.unreadable if piece.suspect is not None}


def read(folder: Path, name: str, texts: dict[str, str]) -> ReadLog:
    """The log of eight jobs, the fourth with hostile texts."""
    form, kind, _ = FORMS[name]
    lines: list[tuple[int, str]] = []
    for place in range(1, 9):
        start = FIRST + place * STEP_S
        lines += form(Submitted(100, "eve", start, **texts) if place == 4 else Submitted(place + 10, "ada", start))
    path = folder / ("20261122" if kind in {"torque", "pbs"} else "accounting")
    text = "".join(line + "\n" for _, line in sorted(lines, key=lambda each: each[0]))
    path.write_text(f"{HEADER}\n{text}" if name == "sacct" else text, encoding="utf-8")
    settings: dict[str, Any] = {"type": kind, "path": path, "cluster": "c"}
    if kind in {"torque", "pbs", "slurm"}:
        settings["timezone"] = "UTC"
    found = ReadLog({}, [])
    for page in make_source("s", schema.SourceSettings(**settings)).pages({}):
        found.jobs |= {job.record_id: job for job in page.jobs}
        found.unreadable += page.unreadable
    return found


def forged(name: str, chance: random.Random) -> str:
    """One to three whole records of another user."""
    form = FORMS[name][0]
    numbers = chance.sample([7, 50, 999], chance.randint(1, 3))
    made = [form(Submitted(number, "ada", FIRST + 1600 - 3000)) for number in numbers]
    return "\n".join(line for record in made for _, line in record[chance.randint(0, len(record) - 1) :])


NUMBERS: Final = ":".join(map(str, range(22)))
"""More in a row than a category has: they look like the middle of another record."""
STARTS: Final = {
    "torque": ["", "x", "01/01/2026 00:00:00;S;5.srv;", " queue=batch", " end=5 Exit_status=0"],
    "pbs": ["", "x", "01/01/2026 00:00:00;S;5.srv;", '"', " queue=workq"],
    "gridengine": [
        *("a:b", "x:0.0:NONE:0.0:0:0", "a:b:c:d:e:f:g", "x", "#", "x:0.0:NONE:0.0:0", NUMBERS),
        *(f"{NUMBERS}:0.0:NONE:0.0:0:0", f"{NUMBERS}:0.0:NONE:0.0:0", "x:y:0.0:NONE:0.0:0:0:y:0.0:NONE:0.0:0:0"),
    ],
    "jobcomp": [
        *("", "x", " JobState=COMPLETED", "y JobState=COMPLETED Partition=p TimeLimit=1 StartTime=z ExitCode=0:0 "),
        *(f"{begin}{jobcomp(Submitted(7, 'ada', FIRST))[0][1]}" for begin in ("#", "x\n#", "/tmp ")),
        *(f"z{rest}" for rest in (jobcomp(Submitted(7, "ada", FIRST))[0][1].partition("Name=ok")[2],)),
        "/tmp SubmitTime=2026-11-01T00:00:00 ExitCode=0:0 ",
    ],
    "sacct": [
        *("", "x", "x|COMPLETED", "x||COMPLETED", "||COMPLETED\nJobID|Start|End"),
        "||COMPLETED\nJobID|User|Start|End|NCPUS|State",
    ],
    "apel": ["", "x", "x|ada|g", "\nJobID|Start|End"],
    "dqs": ["a", "a:b", "", f"x:{':'.join('0' * 23)}", f"x:g:u:n:d:{':'.join('0' * 23)}"],
}
ENDS: Final = {
    "torque": ["y", "y z", "#", ":", "y=", "01/01/2026 00:00:00;XX;5.srv;", "01/01/2026 00:00:00;E;;y"],
    "pbs": ["y", "y z", "#", ":", "y=", "01/01/2026 00:00:00;XX;5.srv;", "01/01/2026 00:00:00;E;;y"],
    "gridengine": [
        *("y", "#y", "#", "", "y z", "y:z", "junk\n\n:", "{", "{}", " {", '{"job_number":7}'),
        *(f"q:h:g:u:n:1:a:{':'.join('0' * 24)}", f"q:h:g:u:n:1:a:{':'.join('0' * 24)}:NONE:d:NONE:2:0:60:0:x"),
    ],
    "jobcomp": ["y", "", "y z"],
    "sacct": ["y", "", "y z", "7|"],
    "apel": ["y", "", "y z"],
    "dqs": ["y", "", "y:z", f"q:h:1:c:g:u:n:d:{':'.join('0' * 23)}"],
}


@pytest.mark.parametrize("name", FORMS)
def test_no_text_makes_changes_or_loses_a_job_of_another_user(tmp_path: Path, name: str) -> None:
    true = read(tmp_path, name, {}).jobs
    assert len(true) == 8
    others = {key: job for key, job in true.items() if job.local_user == "ada"}
    fields = FORMS[name][2]
    for case in range(CASES):
        chance = random.Random(f"{name} {case}")
        text = f"{chance.choice(STARTS[name])}\n{forged(name, chance)}\n{chance.choice(ENDS[name])}"
        texts = dict.fromkeys(chance.sample(fields, chance.randint(1, len(fields))), text)
        found = read(tmp_path, name, texts)
        made_up = [
            job for key, job in found.jobs.items() if key not in true and job.local_user != "eve" and job.finished
        ]
        assert made_up == [], (case, texts)
        for key, job in others.items():
            kept = found.jobs.get(key) or found.suspects.get(key)
            assert kept == job, (case, texts)


WHOLE_TO_THE_END: Final = {
    "gridengine": ("request", ":0.0:NONE:"),
    "dqs": ("request", ":g:ada:"),
    "torque": ("request", " session="),
    "pbs": ("request", " session="),
}
"""The text that the user chooses, and where the rest of the record begins that the server writes after it."""


@pytest.mark.parametrize(
    "start", [NUMBERS, f"{NUMBERS}:0.0:NONE:0.0:0:0", "x:0.0:NONE:0.0:0", "x:y:0.0:NONE:0.0:0:0:y:0.0:NONE:0.0:0:0"]
)
def test_what_follows_a_line_that_is_refused_for_its_category_is_suspect(tmp_path: Path, start: str) -> None:
    """The forged record ends with the end of the broken one, so it is whole, and nothing else shows that it is none."""
    true = read(tmp_path, "gridengine", {}).jobs
    record = gridengine(Submitted(999, "ada", FIRST - 1400))[-1][1].partition(":0.0:NONE:")[0]
    found = read(tmp_path, "gridengine", {"request": f"{start}\n{record}"})
    assert found.jobs.keys() <= true.keys()
    assert {key for key, job in true.items() if job.local_user == "ada"} <= {*found.jobs, *found.suspects}
    assert "999" in {job.local_id for job in found.suspects.values()}


def test_what_follows_a_line_of_dqs_with_other_fields_is_suspect(tmp_path: Path) -> None:
    true = read(tmp_path, "dqs", {}).jobs
    for start in ("x:g", f"x:{':'.join('0' * 23)}", f"x:g:u:n:d:{':'.join('0' * 23)}"):
        found = read(tmp_path, "dqs", {"name": f"{start}\nq:h:1:c:g:ada:n"})
        assert [key for key, job in found.jobs.items() if job.local_user != true[key].local_user] == []
        assert {key for key, job in true.items() if job.local_user == "ada"} <= {*found.jobs, *found.suspects}


@pytest.mark.parametrize("begin", ["x", "x\ny", "#"])
@pytest.mark.parametrize("name", WHOLE_TO_THE_END)
def test_a_record_that_ends_with_the_end_of_the_broken_one_is_suspect(tmp_path: Path, name: str, begin: str) -> None:
    true = read(tmp_path, name, {}).jobs
    field, rest = WHOLE_TO_THE_END[name]
    record = FORMS[name][0](Submitted(999, "ada", FIRST - 1400))[-1][1]
    open_end = record.partition(rest)[0]
    whole = [] if name == "torque" else [record, f"{record}\n{open_end}"]  # docs/reference/sources/torque.md says so
    for text in (open_end, *whole):
        found = read(tmp_path, name, {field: f"{begin}\n{text}"})
        made_up = [job for key, job in found.jobs.items() if key not in true and job.finished]
        assert {job.local_user for job in made_up} <= {"eve"}
        assert {key for key, job in true.items() if job.local_user == "ada"} <= {*found.jobs, *found.suspects}


@pytest.mark.parametrize("before", ["a|b", "a|b|c", "|" * 9])
@pytest.mark.parametrize("between", ["", "y\n"])
def test_a_refused_row_of_a_table_is_cut_too(tmp_path: Path, before: str, between: str) -> None:
    """The name has delimiters, so the row is refused; the comment has a record up to the rest of that row."""
    true = read(tmp_path, "sacct", {}).jobs
    record = sacct(Submitted(999, "ada", FIRST - 1400))[0][1]
    for text in (record, record.removesuffix("|COMPLETED")):
        found = read(tmp_path, "sacct", {"name": before, "request": f"x\n{between}{text}"})
        assert found.jobs.keys() <= true.keys()
        assert {key for key, job in true.items() if job.local_user == "ada"} <= {*found.jobs, *found.suspects}


CUT_IN_TEXT: Final = {"gridengine": ["x", "x:0.0:NONE:0.0:0:0"], "sacct": ["x", "x|COMPLETED"]}
"""Beginnings of a text, the last of which ends the true record."""


@pytest.mark.parametrize("name", FORMS)
def test_a_line_too_long_to_be_read_is_the_rest_of_a_record(tmp_path: Path, name: str) -> None:
    true = read(tmp_path, name, {}).jobs
    others = {key: job for key, job in true.items() if job.local_user == "ada"}
    for field in FORMS[name][2]:
        for begin in CUT_IN_TEXT.get(name, ["x"]):
            for start in (FIRST + 1600, FIRST - 1400):
                for place in (-1, 0):
                    record = FORMS[name][0](Submitted(999, "ada", start))[place][1]
                    found = read(tmp_path, name, {field: f"{begin}\n{record}\n{'y' * (MAX_LINE_BYTES + 1)}"})
                    made_up = {job.local_user for key, job in found.jobs.items() if key not in true and job.finished}
                    assert made_up <= {"eve"}, (field, begin, start)
                    assert {key: found.jobs.get(key) or found.suspects.get(key) for key in others} == others
                    assert any("longer than" in piece.reason for piece in found.unreadable)


def test_a_long_line_of_a_log_that_escapes_line_feeds_holds_nothing(tmp_path: Path) -> None:
    lines = [line for place in range(4) for _, line in gridengine(Submitted(place + 1, "ada", FIRST + place))]
    path = tmp_path / "accounting"
    path.write_text("\n".join([*lines, '{"job_number":7,"job_name":"' + "y" * MAX_LINE_BYTES + '"}', ""]))
    (page,) = make_source("s", schema.SourceSettings(type="gridengine", path=path, cluster="c")).pages({})
    assert (len(page.jobs), [piece.suspect for piece in page.unreadable]) == (4, [None])


def test_a_cut_line_holds_no_more_than_its_neighbours(tmp_path: Path) -> None:
    """A full disk cuts one line, and thousands of whole ones follow."""
    lines = [line for place in range(2_000) for _, line in gridengine(Submitted(place, "ada", FIRST + place))]
    lines[3] = lines[3][: lines[3].index("-q ")]
    path = tmp_path / "accounting"
    path.write_text("".join(line + "\n" for line in lines))
    pages = list(make_source("s", schema.SourceSettings(type="gridengine", path=path, cluster="c")).pages({}))
    suspects = [piece for page in pages for piece in page.unreadable if piece.suspect is not None]
    assert sum(len(page.jobs) for page in pages) + len(suspects) == 1_999
    assert 0 < sum(len(piece.raw) for piece in suspects) <= MAX_HELD_BYTES


@pytest.mark.parametrize("name", FORMS)
def test_any_text_is_read_and_loses_no_job_without_a_trace(tmp_path: Path, name: str) -> None:
    """Also texts that end with the beginning of a record, which nothing distinguishes from it."""
    others = {key: job for key, job in read(tmp_path, name, {}).jobs.items() if job.local_user == "ada"}
    fields = FORMS[name][2]
    for case in range(CASES):
        chance = random.Random(f"any {name} {case}")
        pieces = [forged(name, chance), *STARTS[name], *ENDS[name], "\n", "\n\n", "\r\n", " ", "|", ":", ";", '"', "#"]
        whole = "".join(chance.choices(pieces, k=chance.randint(1, 6)))
        text = whole[: chance.randint(0, len(whole))]
        found = read(tmp_path, name, {chance.choice(fields): text})
        shown = b"\n".join(piece.raw for piece in found.unreadable)
        for key, job in others.items():
            kept = found.jobs.get(key) or found.suspects.get(key)
            assert kept == job or f"{job.local_id}".encode() in shown, (case, text)


@pytest.mark.parametrize("name", FORMS)
def test_any_text_is_read_wherever_an_earlier_reading_ended(tmp_path: Path, name: str) -> None:
    """A line that is held until the log ends may make runs suspect that an earlier reading gave."""
    kind = FORMS[name][1]
    for case in range(CASES // 3):
        chance = random.Random(f"twice {name} {case}")
        pieces = [forged(name, chance), *STARTS[name], *ENDS[name], "\n", ":", ";"]
        text = "".join(chance.choices(pieces, k=chance.randint(1, 6)))
        folder = tmp_path / str(case)
        folder.mkdir()
        read(folder, name, {chance.choice(FORMS[name][2]): text})
        (path,) = folder.iterdir()
        content = path.read_bytes()
        cut, end = sorted(chance.randint(0, len(content)) for _ in range(2))
        settings: dict[str, Any] = {"type": kind, "path": path, "cluster": "c"}
        if kind in {"torque", "pbs", "slurm"}:
            settings["timezone"] = "UTC"
        cursor: dict[str, Any] = {}
        for upto in (cut, end, len(content)):
            path.write_bytes(content[:upto])
            for page in make_source("s", schema.SourceSettings(**settings)).pages(cursor):
                cursor = page.cursor


def test_a_text_without_a_line_feed_holds_nothing(tmp_path: Path) -> None:
    for name, (_, _, fields) in FORMS.items():
        for field in fields:
            found = read(tmp_path, name, {field: "usual text, 1.0 (x)"})
            assert (len(found.jobs), found.unreadable) == (8, []), name


@pytest.mark.parametrize("name", ["torque", "pbs"])
def test_a_whole_record_with_an_earlier_time_than_the_lines_before_it_is_suspect(tmp_path: Path, name: str) -> None:
    """It ends the start record, so nothing else shows that a user wrote it."""
    true = read(tmp_path, name, {}).jobs
    forged_line = FORMS[name][0](Submitted(999, "ada", FIRST - 9_000))[-1][1]
    late = FORMS[name][0](Submitted(998, "bob", FIRST + 90_000))[0][1]
    for text in (f"x\n{forged_line}", f"x\n{late}\n{forged_line}"):
        found = read(tmp_path, name, {"request": text})
        assert {key for key, job in found.jobs.items() if job.finished} <= true.keys()
        kept = {*found.jobs, *found.suspects}
        assert {key for key, job in true.items() if job.local_user == "ada"} <= kept


@pytest.mark.parametrize("name", ["torque", "pbs"])
def test_an_older_log_that_was_appended_is_held_no_longer_than_a_text_may_be(tmp_path: Path, name: str) -> None:
    days = [
        [FORMS[name][0](Submitted(day * 10_000 + i, "ada", FIRST + day * 86_400 + i)) for i in range(999)]
        for day in (1, 0)
    ]
    path = tmp_path / "20261122"
    path.write_text("".join(f"{records[-1][1]}\n" for day in days for records in day))
    settings = schema.SourceSettings.model_validate({"type": name, "path": str(path), "timezone": "UTC"})
    pages = [*make_source("s", settings).pages({})]
    held = [piece for page in pages for piece in page.unreadable]
    assert 0 < sum(len(piece.raw) + 1 for piece in held) <= MAX_HELD_BYTES
    assert sum(len(page.jobs) for page in pages) == 1998 - len(held)


@pytest.mark.parametrize("change", [lambda end: f":{end - 200}:0:0:100:50.0:", lambda end: f":-{end}:0:0:100:50.0:"])
def test_a_record_with_an_impossible_value_holds_no_others(tmp_path: Path, change: Callable[[int], str]) -> None:
    lines = [gridengine(Submitted(number, "ada", FIRST + number * 400))[0][1] for number in range(8)]
    lines[5] = lines[5].replace(f":{FIRST + 2_100}:0:0:100:50.0:", change(FIRST + 2_100))
    path = tmp_path / "accounting"
    path.write_text("\n".join(lines) + "\n")
    settings = schema.SourceSettings.model_validate({"type": "gridengine", "path": str(path), "cluster": "c"})
    (page,) = make_source("s", settings).pages({})
    assert (len(page.jobs), [piece.line for piece in page.unreadable]) == (7, [6])


COLUMNS: Final = "JobIDRaw|JobID|Cluster|User|Account|Submit|Start|End|ElapsedRaw|TotalCPU|NCPUS|JobName|Comment|State"


@pytest.mark.parametrize("text", ["x\n{}", "a|b|{}\nx\n{}", "{}\nx\n{}"])
def test_an_account_makes_no_row(tmp_path: Path, text: str) -> None:
    """Slurm takes any account if it does not check accounts."""
    times = [iso(FIRST + at) for at in (0, 9, 109)]
    forged = f"999|999|c|ada|a|{'|'.join(times)}|100|00:01:00|2|z||COMPLETED"
    own = forged.replace("999|999|c|ada|a|", f"100|100|c|eve|{text.format(forged, forged)}|")
    path = tmp_path / "table"
    path.write_text(f"{COLUMNS}\n{forged.replace('999', '7')}\n{own}\n{forged.replace('999', '8')}\n")
    settings = schema.SourceSettings.model_validate({"type": "slurm", "path": str(path), "timezone": "UTC"})
    seen = list(make_source("s", settings).pages({}))
    assert "999" not in {job.local_id for page in seen for job in page.jobs}
    assert any(piece.suspect and piece.suspect.local_id == "999" for page in seen for piece in page.unreadable)


@pytest.mark.parametrize("count", [99, 100, 20_000])
def test_many_refused_lines_are_few_pieces_with_all_their_text(tmp_path: Path, count: int) -> None:
    line = jobcomp(Submitted(1, "ada", FIRST))[0][1]
    junk = [f"text of a user {number}" for number in range(count)]
    path = tmp_path / "jobcomp"
    path.write_text("\n".join([line, *junk, line.replace("JobId=1", "JobId=2"), ""]))
    settings = schema.SourceSettings.model_validate({"type": "slurm", "path": str(path), "timezone": "UTC"})
    pieces = [piece for page in make_source("s", settings).pages({}) for piece in page.unreadable if not piece.suspect]
    assert len(pieces) <= max(99, 1 + count // 1_000)
    assert b"\n".join(piece.raw for piece in pieces).decode().split("\n") == junk
    body = path.read_bytes()
    assert all(body[piece.offset :].startswith(piece.raw) for piece in pieces if piece.offset is not None)


HELD_AFTER_CUT_BYTES: Final = 16_384
"""Of a completion log: docs/reference/sources/files.md."""


@pytest.mark.parametrize("whole", [False, True])
def test_a_name_in_a_completion_log_holds_few_jobs_of_others(tmp_path: Path, *, whole: bool) -> None:
    """The forged record ends with the rest of the broken one, or by itself; no line shows where the name ended."""
    forged_line = jobcomp(Submitted(999, "ada", FIRST))[0][1]
    name = f"x\n{forged_line if whole else forged_line.partition(' WorkDir=')[0]}"
    hostile = range(30, 600, 60)
    jobs = [Submitted(at, "eve", FIRST, name) if at in hostile else Submitted(at, "ada", FIRST) for at in range(600)]
    lines = [jobcomp(job)[0][1] for job in jobs]
    path = tmp_path / "jobcomp"
    path.write_text("".join(f"{line}\n" for line in lines))
    settings = schema.SourceSettings.model_validate({"type": "slurm", "path": str(path), "timezone": "UTC"})
    pages = list(make_source("s", settings).pages({}))
    counted = {job.local_id for page in pages for job in page.jobs}
    suspect = {piece.suspect.local_id for page in pages for piece in page.unreadable if piece.suspect is not None}
    assert "999" not in counted
    others = {str(at) for at in range(600)} - {str(at) for at in hostile}
    assert others <= counted | suspect
    assert 0 < len(others - counted) <= len(hostile) * (1 + HELD_AFTER_CUT_BYTES // min(map(len, lines)))
