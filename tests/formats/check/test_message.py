"""Inspecting messages: each rule of the services, every golden message, whatever bytes there are."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.base import MOST_INSPECTED
from formats.check.message import (
    ENOUGH_VIOLATIONS,
    LARGEST_TEXT_BYTES,
    Inspection,
    inspect_message,
)
from formats.job import Job
from formats.registry import FORMATS, record_format
from formats.utilization.measure import Bin
from formats.utilization.report import UtilizationReport, in_json
from formats.view import View
from tests.formats.golden_jobs import ARC, CREATED
from tests.strategies import plain_jobs

VIEW = View(site="EXAMPLE-SITE")
GRAMMAR_SOURCES = {each.grammar_source for each in FORMATS.values() if each.grammar}
GOLDEN_WARNINGS = {
    ("arc", "Host", "of several hosts the last one is kept"),
    ("beyond-9999", "EndTime", "missing: stored as NULL"),
}
"""By golden file: what SGAS makes of a record that we cannot render otherwise."""


def message(name: str, *jobs: Job) -> bytes:
    renderer = record_format(name, VIEW)
    return renderer.message([renderer.record(job, CREATED).body for job in jobs or (ARC,)])


UR = message("ogf-ur")
CAR = message("emi-car")
JOBS = message("apel-job")


def changed(payload: bytes, before: str, after: str) -> bytes:
    assert before.encode() in payload
    return payload.replace(before.encode(), after.encode(), 1)


def rules(inspection: Inspection, level: str) -> list[tuple[str, str]]:
    """Field and rule of the violations of a level, without those of the grammars."""
    return [
        (one.field, one.rule)
        for one in inspection.violations
        if one.level == level and one.source not in GRAMMAR_SOURCES
    ]


@pytest.mark.parametrize(
    ("before", "after", "field", "rule"),
    [
        ("JobUsageRecord", "UsageRecord", "", "accepts only JobUsageRecord"),
        (' urf:recordId="ur-ce1.example.org-MPh3FPuR0001"', "", "RecordIdentity@recordId", "mandatory"),
        ("urf:recordId", "recordId", "RecordIdentity@recordId", "must have the namespace's prefix"),
        ("ur-ce1.example.org-MPh3FPuR0001", "u" * 1001, "RecordIdentity@recordId", "1001 characters"),
        ("urf:createTime", "createTime", "RecordIdentity@createTime", "mandatory"),
        ('createTime="2026', 'createTime="x26', "RecordIdentity@createTime", "not a date and time"),
        ("<LocalJobId>1000001</LocalJobId>", "<LocalJobId/>", "LocalJobId", "empty"),
        ("<MachineName>ce1.example.org</MachineName>", "<MachineName/>", "MachineName", "mandatory"),
        ("<MachineName>ce1", f"<MachineName>{'c' * 200}", "MachineName", "characters"),
        ("<Queue>main", f"<Queue>{'q' * 201}", "Queue", "201 characters"),
        ("<Status>completed", f"<Status>{'s' * 101}", "Status", "101 characters"),
        ("<vo:Group>atlas", f"<vo:Group>{'g' * 101}", "VO/Attribute/Group", "101 characters"),
        ("<StartTime>2026-09-18T14:21:26Z</StartTime>", "<StartTime/>", "StartTime", "empty"),
        ("PT9102S", "PT2147483648S", "WallDuration", "2147483648 seconds"),
        ('"user">PT54885S', '"user">54885', "CpuDuration", "one of several is not a duration"),
        ("<NodeCount>2", "<NodeCount>32768", "NodeCount", "not in"),
        ("<NodeCount>2", "<NodeCount>32768", "NodeCount", "is not in -32768..32767"),
        ("<Processors>8", "<Processors>2147483648", "Processors", "not in"),
        ('metric="max" urf:type="physical"', 'metric="peak" urf:type="physical"', "Memory@metric", "not one of"),
        (">4812380<", ">4812380.5<", "Memory", "not a whole number"),
        ("<Status>", "<Charge>much</Charge><Status>", "Charge", "not a number"),
        ("<Status>", "<Charge>1e12</Charge><Status>", "Charge", "32 bits"),
        ("<sgas:ExitCode>0", "<sgas:ExitCode>none", "ExitCode", "not a whole number"),
        ("<arc:RuntimeEnvironment>ENV/RTE<", "<arc:RuntimeEnvironment><", "RuntimeEnvironment", "empty"),
        ("<arc:RuntimeEnvironment>ENV", f"<arc:RuntimeEnvironment>{'e' * 513}", "RuntimeEnvironment", "characters"),
        ("davs://se2", "d" * 2501, "FileTransfers/URL", "characters"),
        ("davs://se2", "\u4f5c" * 890, "FileTransfers/URL", "2692 bytes"),
        ("CN=Dana Dahl", "CN=" + "\u4f5c" * 900, "GlobalUserName", "2692 bytes"),
        (">4812380<", f">{2**53}<", "Memory", "does not fit 64 bits"),
        ('storageUnit="KB" urf:metric', 'storageUnit="Kb" urf:metric', "Memory@storageUnit", "bits"),
        ("PT9102S", "P9999999999D", "WallDuration", "out of bounds"),
        ("<JobUsageRecord>", "<JobUsageRecords/><JobUsageRecord>", "JobUsageRecords", "is not a record"),
        ("atlas-sim-1", "\x80", "", "not UTF-8"),
    ],
)
def test_what_sgas_refuses(before: str, after: str, field: str, rule: str) -> None:
    payload = changed(UR, before, after)
    if after == "JobUsageRecord" or before == "JobUsageRecord":
        payload = UR.replace(b"JobUsageRecord", b"UsageRecord")
    if after == "\x80":
        payload = changed(UR, before, "@").replace(b"@", b"\x80").replace(b"UTF-8", b"iso-8859-1")
    inspection = inspect_message(payload)
    assert not inspection.taken
    assert [reported for at, reported in rules(inspection, "error") if at == field and rule in reported]


@pytest.mark.parametrize(
    ("before", "after", "field", "rule"),
    [
        ("<GlobalJobId>MPh3FPuR0001</GlobalJobId>", "", "GlobalJobId", "replaces the first"),
        ("<LocalJobId>1000001", f"<LocalJobId>{'1' * 121}", "LocalJobId", "record id is rewritten"),
        ("<LocalJobId>1000001", "<LocalJobId>/1", "LocalJobId", "record id is rewritten"),
        ("<vo:Name>atlas</vo:Name>", "", "VO/Name", "nothing about the VO"),
        ("<EndTime>2026-09-18T17:09:09Z</EndTime>", "", "EndTime", "missing"),
        ("<EndTime>2026", "<EndTime>late 2026", "EndTime", "stored as NULL"),
        ("<EndTime>2026-09-18T17:09:09Z", "<EndTime>2026-09-18T17:09:09", "EndTime", "taken as UTC"),
        ("<EndTime>2026-09-18T17:09:09Z", "<EndTime>2026-09-18T17:09:09+0230", "EndTime", "loses its minutes"),
        ("PT9102S", "9102", "WallDuration", "stored as NULL"),
        ("PT9102S", "P1M", "WallDuration", "stored as NULL"),
        ("PT9102S", "-PT9102S", "WallDuration", "negative"),
        ("PT9102S", "PT9102.7S", "WallDuration", "cut"),
        ("<Processors>8</Processors>", "", "NodeCount", "used as Processors"),
        ("<Status>", "<Charge>1.5</Charge><Status>", "Charge", "cut"),
        ("<sgas:ExitCode>0", "<sgas:ExitCode>-1", "ExitCode", "stored as 255"),
        ('type="physical"', 'type="virtual"', "Memory@type", "virtual is lost"),
        ("<NodeCount>2", "<NodeCount>two", "NodeCount", "stored as NULL"),
        ("PT9102S", "P1.5D", "WallDuration", "fraction"),
        ("<EndTime>2026-09-18T17:09:09Z", "<EndTime>2026-261T17:09:09Z", "EndTime", "read as 2026-09-18T17:09:09Z"),
        ('storageUnit="KB" urf:metric', 'storageUnit="KiB" urf:metric', "Memory@storageUnit", "read as bytes"),
        ("<sgas:ExitCode>0<", "<sgas:Unheard>0</sgas:Unheard><sgas:ExitCode>0<", "Unheard", "ignored"),
    ],
)
def test_what_sgas_alters(before: str, after: str, field: str, rule: str) -> None:
    inspection = inspect_message(changed(UR, before, after))
    assert inspection.taken
    assert [reported for at, reported in rules(inspection, "warning") if at == field and rule in reported]


@pytest.mark.parametrize(
    ("before", "after", "field", "rule"),
    [
        ("<UsageRecords", "<!-- ours --><UsageRecords", "", "before the root"),
        ("<UsageRecords", "<?ours?><UsageRecords", "", "before the root"),
        ('<Site urf:type="gocdb">EXAMPLE-SITE</Site>', "", "Site", "mandatory"),
        ("<LocalJobId>1000001</LocalJobId>", "<LocalJobId/>", "LocalJobId", "mandatory"),
        ("<WallDuration>PT9102S</WallDuration>", "", "WallDuration", "mandatory"),
        ("<StartTime>2026-09-18T14:21:26Z</StartTime>", "", "StartTime", "mandatory"),
        ("<WallDuration>PT9102S", "<WallDuration>3600", "WallDuration", "not a duration"),
        ("<WallDuration>PT9102S", "<WallDuration>-PT1S", "WallDuration", "not a duration"),
        ("<WallDuration>PT9102S", "<WallDuration>PT1.5H", "WallDuration", "not a duration"),
        ("<WallDuration>PT9102S", "<WallDuration>PT2147483648S", "WallDuration", "the column has"),
        ('urf:usageType="user"', 'urf:usageType="all"', "CpuDuration", "more than once"),
        ("<EndTime>2026-09-18", "<EndTime>2026-09-17", "EndTime", "before StartTime"),
        ("<EndTime>2026-09-18", "<EndTime>2036-09-18", "EndTime", "in the future"),
        ("<EndTime>2026-09-18", "<EndTime>yesterday", "EndTime", "not a date"),
        ('<ServiceLevel urf:type="HEPscore23"', '<ServiceLevel urf:type="custom"', "ServiceLevel@type", "not one of"),
        ("<ServiceLevel urf:type", "<ServiceLevel type", "ServiceLevel@type", "prefix"),
        (">14.25<", ">fast<", "ServiceLevel", "not a number"),
        ('execution">main', f'execution">{"q" * 101}', "Queue", "101 characters"),
        ("<LocalJobId>1", f"<LocalJobId>{'1' * 250}", "LocalJobId", "characters"),
        ("<Processors>8", "<Processors>eight", "Processors", "not a whole number"),
        ("atlas-sim-1", "application/pkcs7-mime", "", "encrypted"),
        ("atlas-sim-1", "\u00e9", "", "not ASCII"),
    ],
)
def test_what_apel_refuses_of_a_car(before: str, after: str, field: str, rule: str) -> None:
    inspection = inspect_message(changed(CAR, before, after), now=CREATED)
    assert not inspection.taken
    assert [reported for at, reported in rules(inspection, "error") if at == field and rule in reported]


@pytest.mark.parametrize(
    ("before", "after", "field", "rule"),
    [
        ('urf:usageType="all"', 'urf:usageType="user"', "CpuDuration", "the first one is used"),
        ("<WallDuration>PT9102S", "<WallDuration>PT9102.5S", "WallDuration", "rounded"),
        ("<EndTime>2026-09-18T17:09:09Z", "<EndTime>2026-09-18T17:09:09", "EndTime", "taken as UTC"),
        (">14.25<", ">14.2525<", "ServiceLevel", "three decimals"),
        ("<Group>atlas</Group>", "<Group>cms</Group>", "Group", "overrides"),
    ],
)
def test_what_apel_alters_of_a_car(before: str, after: str, field: str, rule: str) -> None:
    inspection = inspect_message(changed(CAR, before, after), now=CREATED)
    assert inspection.taken
    assert [reported for at, reported in rules(inspection, "warning") if at == field and rule in reported]


def test_a_group_attribute_that_apel_does_not_read() -> None:
    payload = CAR.replace(b'type="FQAN"', b'type="other"').replace(b'type="group"', b'type="x"')
    found = rules(inspect_message(payload), "warning")
    assert ("GroupAttribute", "type vo-group is ignored; the server reads group") in found
    assert ("GroupAttribute", "type vo-role is ignored; the server reads role") not in found


@pytest.mark.parametrize(("payload", "counts"), [(UR, "the first one counts"), (CAR, "which it replaces")])
def test_a_record_twice_in_a_message(payload: bytes, counts: str) -> None:
    tag = b"JobUsageRecord" if payload is UR else b"UsageRecord"
    record = payload[payload.index(b"<" + tag + b">") : payload.index(b"</" + tag + b">") + len(tag) + 3]
    inspection = inspect_message(payload.replace(record, record + record))
    assert [(one.record, one.level) for one in inspection.violations if counts in one.rule] == [(2, "warning")]
    assert len(inspection.records) == 2


def test_messages_without_records() -> None:
    assert inspect_message(record_format("ogf-ur", VIEW).message([])).taken
    assert not inspect_message(record_format("emi-car", VIEW).message([])).taken


def test_the_grammar_is_not_checked_after_very_many_violations() -> None:
    empty = b"<JobUsageRecord/>" * (ENOUGH_VIOLATIONS // 4)
    payload = b'<UsageRecords xmlns="http://schema.ogf.org/urf/2003/09/urf">' + empty + b"</UsageRecords>"
    inspection = inspect_message(payload)
    reported = [one.rule for one in inspection.violations if one.source == FORMATS["ogf-ur"].grammar_source]
    assert len(reported) == 1
    assert reported[0].startswith("not checked")
    assert not inspection.valid


def test_what_is_too_large_is_not_looked_at() -> None:
    frame = b'<UsageRecords xmlns="http://schema.ogf.org/urf/2003/09/urf">%b</UsageRecords>'
    for payload in (frame % (b"<JobUsageRecord/>" * (MOST_INSPECTED + 1)), b"APEL: " + b"%%\n" * LARGEST_TEXT_BYTES):
        inspection = inspect_message(payload)
        assert "too large to check" in inspection.title
        assert not inspection.taken


def test_text_is_looked_at_within_bounds() -> None:
    header = "APEL-individual-job-message: v0.3\n"
    many = inspect_message((header + "a:\n%%\n" * 300_000).encode())
    assert (many.taken, len(many.records), len(many.violations)) == (False, 0, 1)
    assert "300000 times %% between records" in many.violations[0].rule
    for text in ("a:\n%%\n" * (MOST_INSPECTED - 1), "".join(f"k{number}: v\n" for number in range(300_000))):
        inspection = inspect_message((header + text).encode())
        assert not inspection.taken
        assert len(inspection.violations) <= ENOUGH_VIOLATIONS + 1
        assert "not checked from here on" in inspection.violations[-1].rule


def test_warnings_alone_do_not_end_the_look_at_a_text() -> None:
    sync = "Site: S\nSubmitHost: h{}\nNumberOfJobs: 1\nMonth: 13\nYear: 2026\n%%\n"
    text = "APEL-sync-message: v0.1\n" + "".join(sync.format(number) for number in range(ENOUGH_VIOLATIONS + 1))
    inspection = inspect_message(text.encode())
    assert inspection.taken
    assert len(inspection.violations) == ENOUGH_VIOLATIONS + 1


def test_an_sgas_message_beyond_what_its_front_end_takes() -> None:
    renderer = record_format("ogf-ur", VIEW)
    bodies = [renderer.record(ARC, CREATED).body] * 1000
    assert ("", "error") in [(one.field, one.level) for one in inspect_message(renderer.message(bodies)).violations]


@pytest.mark.parametrize("name", ["ogf-ur", "emi-car"])
def test_what_only_the_grammar_forbids_is_a_warning_and_not_valid(name: str) -> None:
    inspection = inspect_message(changed(message(name), "<Status>", "<Status/><Status>"))
    assert inspection.taken
    assert not inspection.valid
    assert {one.source for one in inspection.violations} >= {FORMATS[name].grammar_source}


def test_records_are_reported_with_their_jobs_or_fields() -> None:
    xml, text = inspect_message(CAR).records[0], inspect_message(JOBS).records[0]
    assert xml.job is not None
    assert text.job is not None
    assert (xml.id, xml.job.wall_ms) == (ARC.record_id, ARC.wall_ms)
    assert (text.id, text.job.wall_ms, text.fields["Queue"]) == (ARC.local_id, ARC.wall_ms, "main")


@pytest.mark.parametrize(
    ("payload", "title", "rule"),
    [
        (b"", "an empty message", "loader"),
        (b" \n ", "an empty message", "loader"),
        (b"\x00\x01\x02", "binary data", "NUL"),
        (b"APEL-summary-job-message: v0.2\nSite: \xff\n", "unreadable text", "not UTF-8"),
        (b"<a/>", "XML of an unknown format", "root"),
        (UR + UR, "XML of an unknown format", "a file must hold one message"),
        (CAR.replace(b"2012/11", b"2012/10"), "XML of an unknown format", "APEL takes 1.2"),
        (UR.replace(b"2003/09", b"2013/04"), "XML of an unknown format", "Record 2.0, which no service takes"),
        (b"<a", "XML of an unknown format", "not well-formed"),
        (b"<" * 5000, "XML of an unknown format", "not well-formed"),
        (b"<a>" * 100_000, "XML of an unknown format", "not well-formed"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "XML of an unknown format", "document type definition"),
        (b"APEL-cloud-message: v0.4\nSite: x\n", "text with the header APEL-cloud-message: v0.4", "not recognised"),
        (b"hello", "text of an unknown format", "not the header"),
        (b"APEL-summary-job-message: v0.1\n", "text with the header APEL-summary-job-message: v0.1", "not recognised"),
    ],
)
def test_what_is_not_a_message(payload: bytes, title: str, rule: str) -> None:
    inspection = inspect_message(payload)
    assert (inspection.title, inspection.format, inspection.taken) == (title, "", False)
    assert any(rule in one.rule for one in inspection.violations)


def test_entities_are_never_expanded() -> None:
    bomb = b"<!DOCTYPE a [" + b"".join(
        b'<!ENTITY e%d "%s">' % (level, b"&e%d;" % (level - 1) * 10 if level else b"x" * 100) for level in range(9)
    )
    for body in (b"]><a>&e8;</a>", b']><a b="&e8;"/>'):
        assert not inspect_message(bomb + body).taken


def golden_messages(folder: Path) -> list[tuple[str, bytes]]:
    """The messages of the golden files, without the notes after them; held records have none."""
    found = []
    for path in sorted(folder.glob("*/*.txt")):
        content = path.read_bytes()
        message = content.partition(b"\n# ")[0]
        if path.parent.name not in {"inspect", "samples"} and not message.startswith(b"held: ") and message != b"[]":
            found.append((path.stem, message))
    return found


def test_every_golden_message_would_be_taken(fixtures: Path) -> None:
    messages = golden_messages(fixtures / "golden")
    assert len(messages) > 30
    for name, payload in messages:
        inspection = inspect_message(payload, now=None)
        assert inspection.format, name
        assert inspection.valid, (name, inspection.violations)
        reported = {(name, one.field, one.rule) for one in inspection.violations if "which it replaces" not in one.rule}
        assert reported <= GOLDEN_WARNINGS, name


def test_every_golden_message_of_a_source_would_be_taken(fixtures: Path) -> None:
    messages = golden_messages(fixtures / "golden" / "sources")
    assert len(messages) > 60
    for name, payload in messages:
        if not name.startswith("utilization"):  # of a day, which cuts the jobs that ran over its edges
            inspection = inspect_message(payload, now=None)
            assert inspection.valid, (name, inspection.violations)


@given(plain_jobs())
def test_all_that_we_render_would_be_taken(job: Job) -> None:
    for name in ("ogf-ur", "emi-car", "apel-job"):
        inspection = inspect_message(message(name, job))
        assert inspection.valid, (name, inspection.violations)
        assert len(inspection.records) == 1


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_have_an_answer(payload: bytes) -> None:
    inspection = inspect_message(payload, now=CREATED)
    assert inspection.taken == (not any(one.level == "error" for one in inspection.violations))


@given(st.sampled_from([UR, CAR, JOBS]), st.integers(0, 2**32))
def test_spoilt_messages_have_an_answer(payload: bytes, seed: int) -> None:
    rng = random.Random(seed)
    spoilt = bytearray(payload)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(spoilt))
        kind = rng.randrange(3)
        if kind == 0:
            spoilt[at] = rng.randrange(256)
        elif kind == 1:
            del spoilt[at : at + rng.randrange(1, 40)]
        else:
            spoilt[at:at] = rng.choice([b"<", b"&#x1F600;", b"9" * 500, b"%%\n", b"\n\n", b"]]>", b"\xff", b"-", b"."])
    inspection = inspect_message(bytes(spoilt), now=CREATED)
    assert inspection.title


@pytest.mark.parametrize(
    "text",
    [
        f"1|1|c{'|x' * 23}\n" + "\n" * 300_000,
        "[" + ",".join(['{"record_id":"","start_time":""}'] * 100_000) + "]",
    ],
)
def test_wrong_records_take_no_memory_each(text: str) -> None:
    """A file of 8 MB took 1.7 GB for sentences of which 10,000 are kept."""
    inspect_message(b"[]")  # what is made once
    tracemalloc.start()
    try:
        inspection = inspect_message(text.encode())
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not inspection.taken
    assert peak_bytes < 12 * len(text) + (4 << 20)


def test_a_report_has_as_many_bins_as_its_interval() -> None:
    """More than other messages may have records: hours of three years."""
    count = MOST_INSPECTED + 1
    numbers = [0] * (len(Bin.__struct_fields__) - 2)
    bins = tuple(Bin(3600 * place, 3600, *numbers) for place in range(count))
    report = UtilizationReport(site="S", start=0, stop=3600 * count, bin_s=3600, measure="queue", bins=bins)
    assert len(inspect_message(in_json(report)).records) == count
