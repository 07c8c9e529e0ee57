"""What another publisher sent: exports of the APEL client's database, and jobs whose ids are spelled in another way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.check.fields import Fields, each_fields_of
from publisher.errors import UsageError
from publisher.migrate.old_records import KeptRecord, OldRecord, OldRecords, key_of

END = 1_790_818_200  # 2026-10-01T01:30:00Z
HEADER = "Site\tLocalJobId\tEndTime\n"


@pytest.fixture
def old() -> Iterator[OldRecords]:
    with OldRecords("apel-job", keeps_first=False) as records:
        yield records


def read(old: OldRecords, tmp_path: Path, text: str, name: str = "export.tsv") -> None:
    file = tmp_path / name
    file.write_text(text)
    old.read([file], END)


def fields(local: str, end: int = END, site: str = "SITE") -> dict[str, tuple[str, ...]]:
    return {"Site": (site,), "LocalJobId": (local,), "EndTime": (str(end),)}


def matched(old: OldRecords, *ours: tuple[str, Fields, str]) -> dict[str, OldRecord | None]:
    """What is found for records of ours: (name, fields as sent, the batch system's id)."""
    found = {}
    for run_id, (name, sent, local) in enumerate(ours):
        found[name] = old.match(sent, name)
        if found[name] is None:
            old.keep_for_later(KeptRecord(run_id, b"", name, local, sent))
    return found | {kept.name: record for kept, record in old.match_the_rest()}


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "SITE\t7\t2026-10-01 01:30:00\n",
        "LocalJobId,Site,UpdateTime,EndTime,Queue\n7,SITE,2026-11-01 00:00:00,2026-10-01 01:30:00,NULL\n",
        f"Site,LocalJobId,EndTime\nSITE,7,{END}\n",
    ],
    ids=["tabs", "commas", "epoch"],
)
def test_exports(old: OldRecords, tmp_path: Path, text: str) -> None:
    read(old, tmp_path, text)
    (found,) = old.unmatched()
    assert (found.end, found.is_export) == (END, True)
    assert key_of("apel-job", found.fields) == {"Site": "SITE", "LocalJobId": "7", "EndTime": str(END)}
    assert found.fields.keys() == {"Site", "LocalJobId", "EndTime"}


def test_what_mariadb_escapes(old: OldRecords, tmp_path: Path) -> None:
    read(old, tmp_path, HEADER + "SITE\ta\\tb\\\\c\\nd\t2026-10-01 01:30:00\n")
    (found,) = old.unmatched()
    assert found.fields["LocalJobId"] == ("a\tb\\c\nd",)


@pytest.mark.parametrize(
    ("line", "said"),
    [("SITE\t7\n", "line 3 has 2 columns"), ("SITE\t7\tyesterday\n", "line 3: EndTime 'yesterday' is not a time")],
)
def test_a_line_that_cannot_be_read_is_named(old: OldRecords, tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(old, tmp_path, HEADER + "SITE\t6\t2026-10-01 01:30:00\n" + line)


SYNC = "Site\tSubmitHost\tNumberOfJobs\tMonth\tYear\n"
SUMMARIES = "Site\tVO\tMonth\tYear\tNumberOfJobs\n"


@pytest.mark.parametrize(
    "text",
    [SYNC + "site\tce1\t2\t10\t2026\nSITE\tNone\t1\t10\t2026\n", SUMMARIES + "SITE\tcms\t10\t2026\t3\n"],
    ids=["sync", "summaries"],
)
def test_a_list_with_fewer_jobs_than_another_table(old: OldRecords, tmp_path: Path, text: str) -> None:
    read(old, tmp_path, HEADER + "SITE\t7\t2026-10-01 01:30:00\nSITE\t8\t2026-10-01 01:30:00\n")
    read(old, tmp_path, text, "counts.tsv")
    assert old.count == 2
    (october,) = old.job_counts.shortages(old.listed(), ["Site"], (None, None))
    assert (str(october.month), october.listed, october.counted) == ("2026-10", 2, 3)
    assert not list(old.job_counts.shortages(old.listed(), ["another"], (None, None)))
    november = 1_793_491_200
    assert not list(old.job_counts.shortages(old.listed(), ["Site"], (november, None)))
    assert list(old.job_counts.shortages(old.listed(), ["Site"], (november - 1, None))), "the month is begun"


def test_two_rows_of_one_key_are_two_jobs_of_the_table(old: OldRecords, tmp_path: Path) -> None:
    """The client's key has the machine, and that of the service has not."""
    read(old, tmp_path, HEADER + 2 * "SITE\t7\t2026-10-01 01:30:00\n")
    read(old, tmp_path, SYNC + "SITE\tce1\t2\t10\t2026\n", "counts.tsv")
    assert (old.count, old.again) == (1, 1)
    assert not list(old.job_counts.shortages(old.listed(), ["SITE"], (None, None)))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("1042.lrms.example.org", "1042"),
        ("1053[2].lrms.example.org", "1053_2"),
        ("1053_2", "1053_2"),
        ("1053", "1053_2"),
        ("schedd.example.org#2376.0#1790816340", "2376.0"),
        ("schedd.example.org#2376.0#1790816340", "schedd.example.org#2376.0#1790816340"),
        ("2376.0", "schedd.example.org#2376.0#1790816340"),
    ],
)
def test_the_same_job_in_other_words(old: OldRecords, tmp_path: Path, theirs: str, ours: str) -> None:
    read(old, tmp_path, HEADER + f"site\t{theirs}\t2026-10-01 01:30:00\n")
    found = matched(old, ("ours", fields("whatever is sent"), ours))["ours"]
    assert found is not None
    assert found.matched_by is None
    assert list(old.unmatched()) == []


@pytest.mark.parametrize(
    ("theirs", "ours", "end", "site"),
    [
        ("1042.lrms.example.org", "1043", END, "SITE"),
        ("1042.lrms.example.org", "1042", END + 2, "SITE"),
        ("1042.lrms.example.org", "1042", END, "OTHER"),
        ("1053_1", "1053_2", END, "SITE"),
        ("1042.lrms1.example.org", "1042.lrms2", END, "SITE"),
        ("schedd.example.org#2376.1#1790816340", "2376.0", END, "SITE"),
        ("a.example.org#2376.0#1790816340", "b.example.org#2376.0#1790816340", END, "SITE"),
        ("a@example.org#2376.0#1790816340", "b@example.org#2376.0#1790816340", END, "SITE"),
    ],
)
def test_another_job(old: OldRecords, tmp_path: Path, theirs: str, ours: str, end: int, site: str) -> None:
    read(old, tmp_path, HEADER + f"SITE\t{theirs}\t2026-10-01 01:30:00\n")
    assert matched(old, ("ours", fields("x", end, site), ours)) == {"ours": None}


def test_several_of_ours_for_one_of_theirs(old: OldRecords, tmp_path: Path) -> None:
    read(old, tmp_path, HEADER + "SITE\t1053\t2026-10-01 01:30:00\n")
    found = matched(old, *((f"task {task}", fields(f"1053.{task}"), f"1053_{task}") for task in (1, 2, 3)))
    assert [each and each.matched_by for each in found.values()] == [None, "task 1", "task 2"]


def test_a_job_that_is_spelled_as_theirs_takes_its_record_from_one_that_is_alike(
    old: OldRecords, tmp_path: Path
) -> None:
    """In any order: the other one was not delivered, and must be sent."""
    read(old, tmp_path, HEADER + "SITE\t7\t2026-10-01 01:30:00\n")
    found = matched(old, ("alike", fields("7.1"), "7_1"), ("spelled as theirs", fields("7"), "7"))
    assert found["alike"] is None
    assert found["spelled as theirs"] is not None


def test_an_end_that_was_rounded(old: OldRecords, tmp_path: Path) -> None:
    """The client rounds Grid Engine's milliseconds; only what has no match by the same end is matched so."""
    read(old, tmp_path, HEADER + "SITE\t1053\t2026-10-01 01:30:00\nSITE\t1053\t2026-10-01 01:30:01\n")
    ends = {1: END - 1, 2: END, 3: END + 1, 4: END + 2, 5: END}
    found = matched(old, *((str(n), fields(f"1053.{n}", end), f"1053_{n}") for n, end in ends.items()))
    assert {name for name, record in found.items() if record is None} == {"1", "4"}
    read(old, tmp_path, HEADER + "SITE\t1060\t2026-10-01 01:30:00\n", "more.tsv")
    assert matched(old, ("6", fields("1060", END - 1), "1060"))["6"] is not None


def test_two_sites_may_have_jobs_of_the_same_number_and_end(old: OldRecords, tmp_path: Path) -> None:
    read(old, tmp_path, HEADER + "SITE\t7\t2026-10-01 01:30:00\nOTHER\t7\t2026-10-01 01:30:00\n")
    assert (old.count, old.again, old.sites()) == (2, 0, ["OTHER", "SITE"])
    assert old.match(fields("7", site="THIRD"), "ours") is None
    assert old.match(fields("7", site="site "), "ours") is not None
    (left,) = old.unmatched()
    assert left.fields["Site"] == ("OTHER",)


@pytest.mark.parametrize(
    ("theirs", "ours", "same"),
    [
        ("1053.1", "1053.2", False),
        ("1053.1", "1053.1", True),
        ("1042.lrms", "1042", True),
        ("1042", "1042.lrms", True),
        ("alpha.lrms", "alpha", True),
    ],
)
def test_usage_records_with_ids_of_their_own(tmp_path: Path, theirs: str, ours: str, *, same: bool) -> None:
    def record(publisher: str, local: str) -> str:
        return (
            '<UsageRecord xmlns="http://schema.ogf.org/urf/2003/09/urf">'
            f'<RecordIdentity recordId="{publisher}-{local}" createTime="2026-10-02T00:00:00Z"/>'
            f"<JobIdentity><LocalJobId>{local}</LocalJobId></JobIdentity><Status>completed</Status>"
            "<MachineName>ce1.example.org</MachineName><EndTime>2026-10-01T01:30:00Z</EndTime></UsageRecord>"
        )

    with OldRecords("ogf-ur", keeps_first=True) as old:
        read(old, tmp_path, record("theirs", theirs), "message.xml")
        (of_ours,) = each_fields_of("ogf-ur", record("ours", ours).encode())
        assert (matched(old, ("ours", of_ours, ours))["ours"] is not None) is same


# --- other time zones, and clocks that are set back

WHOLE = "Site\tLocalJobId\tStartTime\tEndTime\tInfrastructureDescription\n"


@pytest.mark.parametrize(
    ("start", "end", "same"),
    [
        ("2026-10-01 00:30:00", "2026-10-01 00:30:00", True),  # the end is in the other of two hours
        ("2026-10-01 00:30:00", "2026-10-01 02:30:00", True),
        ("2026-10-01 00:30:01", "2026-10-01 00:30:00", False),
        ("2026-10-01 00:30:00", "2026-10-01 00:20:00", False),
    ],
)
def test_the_hour_that_a_clock_set_back_has_twice(
    old: OldRecords, tmp_path: Path, start: str, end: str, *, same: bool
) -> None:
    read(old, tmp_path, WHOLE + f"SITE\t1042.lrms\t{start}\t{end}\tNULL\n")
    ours = {**fields("1042"), "StartTime": (str(END - 3600),)}
    assert (matched(old, ("ours", ours, "1042"))["ours"] is not None) is same


@pytest.mark.parametrize(
    ("site", "start", "end", "seen"),
    [
        ("SITE", "2026-10-01 02:30:00", "2026-10-01 03:30:00", True),
        ("SITE", "2026-10-01 01:30:00", "2026-10-01 03:30:00", True),  # the clock was set meanwhile
        ("SITE", "2026-10-01 02:30:00", "2026-10-01 03:20:00", False),
        ("SITE", "2026-10-03 02:30:00", "2026-10-03 03:30:00", False),
        ("OTHER", "2026-10-01 02:30:00", "2026-10-01 03:30:00", False),
    ],
)
def test_ends_that_another_time_zone_may_cause(
    old: OldRecords, tmp_path: Path, site: str, start: str, end: str, *, seen: bool
) -> None:
    read(old, tmp_path, WHOLE + f"{site}\t1042\t{start}\t{end}\tNULL\n")
    old.keep_for_later(
        KeptRecord(1, b"", "ours", "1042", {**fields("1042"), "StartTime": (str(END - 3600),)}, None, "s")
    )
    assert [kept.name for kept, record in old.match_the_rest() if record is None] == ["ours"]
    assert [each.source for each in old.other_ends()] == ["s"] * seen


# --- steps of Slurm


@pytest.mark.parametrize(
    ("local", "description", "only_slurm", "is_step"),
    [
        ("1087.batch", "APEL-CREAM-SLURM", False, True),
        ("1087_3.batch", "NULL", True, True),
        ("1087+1.extern", "NULL", True, True),
        ("1087.0", "APEL-CREAM-SLURM", False, True),
        ("1087", "APEL-CREAM-SLURM", True, False),
        ("1087.batch", "APEL-CREAM-PBS", True, False),  # a job of a TORQUE server named batch
        ("1087.0", "NULL", False, False),  # a job of HTCondor
    ],
)
def test_a_step_is_not_the_job(
    tmp_path: Path, local: str, description: str, *, only_slurm: bool, is_step: bool
) -> None:
    with OldRecords("apel-job", keeps_first=False, only_slurm=only_slurm) as old:
        read(old, tmp_path, WHOLE + f"SITE\t{local}\t2026-10-01 00:30:00\t2026-10-01 01:30:00\t{description}\n")
        assert (matched(old, ("ours", fields("other"), "1087"))["ours"] is None) is is_step
