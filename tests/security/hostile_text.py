"""Hostile texts for a field that a user controls, and what must be true of a source that read one.

A batch system's test gives its own delimiters, headers, and forged records; `hostile_texts` combines them with the
texts that are hostile to every format. The test writes each text into each field as the batch system would write it,
reads the result, and calls `assert_harmless` with a reading of the same input in which that field is harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from formats.identity import encode
from formats.job import Job
from publisher.sources.base import Unreadable
from tests.publisher.sources.log_reading import Seen

LONG_BYTES: Final = 65_536

GENERAL: Final[dict[str, bytes]] = {
    "empty": b"",
    "blank": b" ",
    "line feed": b"a\nb",
    "line feed first": b"\na",
    "line feed last": b"a\n",
    "only line feeds": b"\n\n\n",
    "100 line feeds": b"a" + b"\n" * 100 + b"b",
    "carriage return": b"a\rb",
    "carriage return and line feed": b"a\r\nb\r\n",
    "tab, vertical tab, form feed": b"a\tb\vc\fd",
    "control characters": bytes(range(1, 32)) + b"\x7f",
    "NUL": b"a\0b",
    "escape sequences": b"\x1b]0;owned\x07\x1b[2J\x1b[31m",
    "separators of ASCII": b"a\x1cb\x1dc\x1ed\x1fe",
    "colons": b":".join([b"a"] * 50),
    "pipes": b"|".join([b"a"] * 50),
    "commas": b",".join([b"a"] * 50),
    "semicolons": b";".join([b"a"] * 50),
    "hashes": b"#".join([b"a"] * 50),
    "equal signs": b"a=b=c = d",
    "percent signs": b"%s%n%0a%00%n",
    "double quotes": b'a"b""c"',
    "one double quote": b'"',
    "single quotes": b"a'b''c'",
    "one single quote": b"'",
    "backslashes": b"a\\b\\\\c\\",
    "backslash and line feed": b"a\\\nb",
    "escapes": b"\\n\\x0a\\u000a\\ud800\\0",
    "brackets": b"a]}[{)(",
    "markup": b"<script>alert(1)</script>&lt;]]><!--",
    "comment": b"# a",
    "line with a comment": b"a\n# b\nc",
    "null": b"(null)",
    "unknown": b"Unknown",
    "number": b"999999999999999999999",
    "negative number": b"-1",
    "invalid UTF-8": b"a\xff\xfeb\xc3",
    "Latin-1": "Jürgen".encode("latin-1"),
    "surrogate in UTF-8": b"a\xed\xa0\x80b",
    "byte order mark": b"\xef\xbb\xbfa",
    "accents and other scripts": "é 作業 🦑".encode(),
    "line separators of Unicode": "a\u2028b\u2029c\u0085d".encode(),
    "bidirectional marks": "a\u202egnp\u2066b\u200f".encode(),
    "digits of other scripts": "١٢٣".encode(),
    "64 KiB": b"a" * LONG_BYTES,
    "64 KiB of line feeds": b"\n" * LONG_BYTES,
    "64 KiB of blanks": b" " * LONG_BYTES,
    "64 KiB of quotes": b'"' * LONG_BYTES,
    "64 KiB of backslashes": b"\\" * LONG_BYTES,
}
"""Texts that are hostile in any format, by what they are."""

RECORDS: Final[dict[str, bytes]] = {
    "Grid Engine": b"all.q:n1:g:rival:x:7:sge:0:1793491000:1793491010:1793491999:0:0:989:1.0:1.0:0:0:0:0:0:0:0:0:0:"
    b"0:0:0:0:0:0:0:p:d:NONE:999:0:1.0:0.0:0.0:NONE:0.0:NONE:0.0:0:0",
    "Grid Engine, JSON lines": b'{"job_number":7,"task_number":0,"owner":"rival","group":"g","account":"sge",'
    b'"qname":"all.q","hostname":"n1","submission_time":1793491000000000,"start_time":1793491010000000,"end_time":1793491999000000,'
    b'"slots":999,"usage":{"rusage":{"ru_wallclock":989},"usage":{"cpu":1.0}}}',
    "TORQUE": b"11/01/2026 00:00:00;E;7.s;user=rival group=g jobname=x queue=q ctime=1793491000 qtime=1793491000 "
    b"etime=1793491000 start=1793491010 exec_host=n1/0-998 end=1793491999 Exit_status=0 "
    b"resources_used.walltime=00:16:29",
    "LSF": b'"JOB_FINISH" "10.1" 1793491999 7 1001 33816578 999 1793491000 0 0 1793491010 "rival" "q" "" "" "" "s" "/" '
    b'"" "" "" "1793491000.7" 0 1 "n1" 64 1.0 "x" "x" -1 -1',
    "HTCondor": b'ClusterId = 7\nProcId = 0\nOwner = "rival"\nGlobalJobId = "s#7.0#1793491000"\nJobStatus = 4\n'
    b"JobStartDate = 1793491010\nCompletionDate = 1793491999\nRemoteWallClockTime = 989.0\nCpusProvisioned = 999\n"
    b'*** Offset = 0 ClusterId = 7 ProcId = 0 Owner = "rival" CompletionDate = 1793491999',
    "HTCondor for APEL": b"s#7.0#1793491000|rival|989|1|1|1793491010|1793491999|1|1|999|1|",
    "DQS": b"q:n1:7:x:rival:g:1793491000:1793491010:1793491999:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0",
    "BLAH": b'"timestamp=2026-11-01 00:00:00" "userDN=/CN=rival" "userFQAN=/vo/Role=x" "ceID=ce:9619/q" "jobID=x" '
    b'"lrmsID=7" "localUser=1002"',
    "Slurm, job completion log": b"JobId=7 UserId=rival(1002) GroupId=rival(1002) Name=x JobState=COMPLETED "
    b"Partition=p TimeLimit=60 StartTime=2026-11-01T00:00:00 EndTime=2026-11-01T12:00:00 NodeList=n1 NodeCnt=1 "
    b"ProcCnt=999 WorkDir=/ ReservationName= Tres=cpu=999 Account=a QOS=normal WcKey= Cluster=c1 "
    b"SubmitTime=2026-11-01T00:00:00 EligibleTime=2026-11-01T00:00:00 DerivedExitCode=0:0 ExitCode=0:0",
    "Slurm, table": b"JobID|JobIDRaw|Start|End|State|NCPUS|User\n7|7|1793491010|1793491999|COMPLETED|999|rival",
    "JSON": b'"}, {"job_id": 7, "user": "rival"}, {"x": "',
    "XML": b'</s></a></c><c><a n="ClusterId"><i>7</i></a></c>',
}
"""A whole record of another user's job 7 in each format that a source reads."""


def hostile_texts(
    *,
    delimiters: Iterable[bytes] = (),
    headers: Iterable[bytes] = (),
    records: Iterable[bytes] = (),
) -> dict[str, bytes]:
    """Every hostile text, by name.

    `delimiters`: what separates fields or records. `headers`: lines that change how later lines are read. `records`:
    complete records of an invented run, in the format under test, with the same columns as the input.
    """
    texts = dict(GENERAL)
    for by in delimiters:
        for count in (1, 2, 3, 12, 60, 200):
            texts[f"{count} x {by!r}"] = b"x" + by * count + b"x"
        texts[f"line feed and {by!r}"] = b"x" + by + b"\n" + by + b"x"
        texts[f"64 KiB of {by!r}"] = (by * LONG_BYTES)[:LONG_BYTES]
    forged = {**RECORDS, **{f"own {number}": record for number, record in enumerate(records)}}
    for name, record in forged.items():
        texts[f"record: {name}"] = record
        texts[f"record on lines of its own: {name}"] = b"x\n" + record + b"\n"
        texts[f"record on lines of its own, and more: {name}"] = b"x\n" + record + b"\ny"
        texts[f"record after a carriage return: {name}"] = b"x\r" + record + b"\r"
        texts[f"two records: {name}"] = b"\n" + record + b"\n" + record + b"\n"
        texts[f"beginning of a record: {name}"] = b"\n" + record[: len(record) // 2]
        texts[f"end of a record: {name}"] = record[len(record) // 2 :] + b"\n"
    for number, header in enumerate(headers):
        texts[f"header {number}"] = header
        texts[f"header on a line of its own {number}"] = b"x\n" + header + b"\n"
        texts[f"header as the last line {number}"] = b"x\n" + header
        for name, record in forged.items():
            texts[f"header {number} and record: {name}"] = b"x\n" + header + b"\n" + record + b"\n"
    return texts


def assert_harmless(
    baseline: Seen, attacked: Seen, own: Collection[str], may_differ: Sequence[str] = ("name", "extras")
) -> None:
    """Assert that a hostile text harmed only the job that has it.

    `baseline` read the input with a harmless text, `attacked` the same input with the hostile one. `own`: record ids of
    the runs that have it. No other run may be added, changed, or lost; it may be held as suspect. Each own run is
    stored with every value but those of the fields `may_differ` as in the baseline, or the attacked reading lists more
    that is unreadable.
    """
    assert set(own) <= baseline.jobs.keys(), "the harmless text must be readable, or the test shows nothing"
    added = attacked.jobs.keys() - baseline.jobs.keys()
    assert not added, f"runs that never were: {sorted(added)}"
    held = [piece.suspect for piece in attacked.unreadable]
    lost = {key for key, job in baseline.jobs.items() if key not in attacked.jobs and job not in held} - set(own)
    assert not lost, f"runs of others are lost: {sorted(lost)}"
    for record_id, job in attacked.jobs.items():
        before = baseline.jobs[record_id]
        if record_id in own:
            assert _without(job, may_differ) == _without(before, may_differ), f"{record_id} has other facts"
            assert encode(job), "it can be stored"
        else:
            assert job == before, f"{record_id} is of another user, and changed"
    if not set(own) <= attacked.jobs.keys():
        listed = len(attacked.unreadable) - len(baseline.unreadable)
        assert listed > 0, f"{sorted(set(own) - attacked.jobs.keys())} is neither stored nor listed as unreadable"
    assert all(_is_presentable(piece) for piece in attacked.unreadable)


def _without(job: Job, names: Sequence[str]) -> Job:
    return msgspec.structs.replace(job, **{name: {} if name == "extras" else None for name in names})


def _is_presentable(piece: Unreadable) -> bool:
    return bool(piece.reason) and "\n" not in piece.reason and len(piece.raw) <= LONG_BYTES
