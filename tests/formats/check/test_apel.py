"""Each rule of the APEL receiver for text messages, broken on purpose; each test is named after the rule."""

from __future__ import annotations

import pytest
from hypothesis import given

from formats.check.apel import check_text
from tests.strategies import hostile_text

NOW = 1_795_000_000
JOB = {
    "Site": "S", "SubmitHost": "ce", "LocalJobId": "1", "GlobalUserName": "/CN=A", "VO": "atlas", "WallDuration": "10",
    "CpuDuration": "8", "Processors": "1", "NodeCount": "1", "StartTime": "1793491200", "EndTime": "1793491300",
    "ServiceLevelType": "HEPSPEC", "ServiceLevel": "12.26",
}  # fmt: skip
SUMMARY = {
    "Site": "S", "Month": "11", "Year": "2026", "VO": "atlas", "SubmitHost": "ce", "InfrastructureType": "grid",
    "ServiceLevelType": "HEPSPEC", "ServiceLevel": "12.26", "NodeCount": "1", "Processors": "1",
    "EarliestEndTime": "1793491200", "LatestEndTime": "1793491300", "WallDuration": "10", "CpuDuration": "8",
    "NumberOfJobs": "1",
}  # fmt: skip
SYNC = {"Site": "S", "SubmitHost": "ce", "NumberOfJobs": "3", "Month": "11", "Year": "2026"}
HEADERS = {
    "job": "APEL-individual-job-message: v0.3",
    "job-0.4": "APEL-individual-job-message: v0.4",
    "summary": "APEL-summary-job-message: v0.2",
    "summary-0.4": "APEL-summary-job-message: v0.4",
    "normalised-0.3": "APEL-summary-job-message: v0.3",
    "normalised": "APEL-normalised-summary-message: v0.4",
    "sync": "APEL-sync-message: v0.1",
}
WITHOUT_SCORE = {"InfrastructureType": None, "ServiceLevelType": None, "ServiceLevel": None, "Infrastructure": "grid"}
BASES: dict[str, dict[str, str | None]] = {
    "job": {**JOB},
    "job-0.4": {**JOB, "ServiceLevelType": None, "ServiceLevel": "{HEPscore23: 11.5}"},
    "summary": {**SUMMARY},
    "summary-0.4": {**SUMMARY, "ServiceLevelType": None, "ServiceLevel": "{HEPSPEC: 1.0}"},
    "normalised-0.3": {
        **SUMMARY, **WITHOUT_SCORE, "NormalisedWallDuration": "100", "NormalisedCpuDuration": "80",
    },
    "normalised": {
        **SUMMARY, **WITHOUT_SCORE, "NormalisedWallDuration": "{HEPscore23: 100}",
        "NormalisedCpuDuration": "{HEPscore23: 80}",
    },
    "sync": {**SYNC},
}  # fmt: skip

NO_SCORE = {"ServiceLevel": None, "ServiceLevelType": None}
NEXT_YEAR = {"Year": "2027", "EarliestEndTime": None, "LatestEndTime": None}
NORMALISED = "NormalisedCpuDuration"


def message(kind: str, **changes: str | None) -> str:
    fields = {**BASES[kind], **changes}
    return HEADERS[kind] + "\n" + "".join(f"{key}: {value}\n" for key, value in fields.items() if value is not None)


def found(text: str) -> set[tuple[str, str]]:
    return {(violation.level, violation.field) for violation in check_text(text, NOW)}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_right_message_breaks_no_rule(kind: str) -> None:
    assert check_text(message(kind), NOW) == []


@pytest.mark.parametrize(
    ("rule", "kind", "changes", "level", "field"),
    [
        ("unknown field", "job", {"Foo": "1"}, "error", "Foo"),
        ("update time and submit host type ignored", "job", {"SubmitHostType": "x"}, "warning", "SubmitHostType"),
        ("mandatory field missing", "job", {"EndTime": None}, "error", "EndTime"),
        ("null in mandatory field", "job", {"LocalJobId": "NULL"}, "error", "LocalJobId"),
        ("job text without service level", "job", NO_SCORE, "error", "ServiceLevel"),
        ("job 0.4 without service level stops the loader", "job-0.4", {"ServiceLevel": None}, "error", "ServiceLevel"),
        ("service level type not valid", "job", {"ServiceLevelType": "custom"}, "error", "ServiceLevelType"),
        ("summary stores any service level type", "summary", {"ServiceLevelType": "x"}, "warning", "ServiceLevelType"),
        ("end before start", "job", {"EndTime": "1793491199"}, "error", "EndTime"),
        ("end in the future", "job", {"EndTime": str(NOW + 3 * 86_400)}, "error", "EndTime"),
        ("an instant that is none", "job", {"EndTime": "12.5"}, "error", "EndTime"),
        ("iso times are shifted", "job", {"EndTime": "2026-11-01T00:00:00Z"}, "warning", "EndTime"),
        ("wall beyond 32 bits", "job", {"WallDuration": "2147483648"}, "error", "WallDuration"),
        ("negative duration", "summary", {"CpuDuration": "-1"}, "error", "CpuDuration"),
        ("fractional duration", "job", {"WallDuration": "1.5"}, "error", "WallDuration"),
        ("local job id too long", "job", {"LocalJobId": "x" * 256}, "error", "LocalJobId"),
        ("queue too long", "job", {"Queue": "x" * 101}, "error", "Queue"),
        ("infrastructure type too long", "summary", {"InfrastructureType": "x" * 21}, "error", "InfrastructureType"),
        ("fqan overrides", "job", {"FQAN": "/cms"}, "warning", "FQAN"),
        ("service level beyond decimal 10 3", "job", {"ServiceLevel": "1e7"}, "error", "ServiceLevel"),
        ("service level nan", "job", {"ServiceLevel": "nan"}, "error", "ServiceLevel"),
        ("service level to three decimals", "job", {"ServiceLevel": "1.2345"}, "warning", "ServiceLevel"),
        ("service level no number", "job", {"ServiceLevel": "{HEPSPEC: 1}"}, "error", "ServiceLevel"),
        ("expecting dictionary", "job-0.4", {"ServiceLevel": "11.5"}, "error", "ServiceLevel"),
        ("no valid benchmark", "summary-0.4", {"ServiceLevel": "{x: 1}"}, "error", "ServiceLevel"),
        ("benchmark twice", "job-0.4", {"ServiceLevel": "{hepspec: 1, hepspec: 2}"}, "error", "ServiceLevel"),
        ("best benchmark counts", "job-0.4", {"ServiceLevel": "{si2k: 1, hepspec: 2}"}, "warning", "ServiceLevel"),
        ("no service level type in 0.4", "summary-0.4", {"ServiceLevelType": "HEPSPEC"}, "error", "ServiceLevelType"),
        ("node count needed", "summary", {"NodeCount": None}, "error", "NodeCount"),
        ("processors needed", "normalised", {"Processors": None}, "error", "Processors"),
        ("service level needed", "summary", {"ServiceLevel": None}, "error", "ServiceLevel"),
        ("month out of range", "summary", {"Month": "13"}, "error", "Month"),
        ("month in the future", "summary", NEXT_YEAR, "error", "Month"),
        ("earliest outside the month", "summary", {"EarliestEndTime": "1793491199"}, "error", "EarliestEndTime"),
        ("latest outside the month", "summary", {"LatestEndTime": "1796083201"}, "error", "LatestEndTime"),
        ("latest before earliest", "summary", {"EarliestEndTime": "1793491301"}, "error", "LatestEndTime"),
        ("summaries have no queue", "summary", {"Queue": "q"}, "error", "Queue"),
        ("its infrastructure", "normalised-0.3", {"InfrastructureType": "grid"}, "error", "InfrastructureType"),
        ("plain says infrastructure type", "summary", {"Infrastructure": "grid"}, "error", "Infrastructure"),
        ("mixture of benchmarks", "normalised", {NORMALISED: "{si2k: 8}"}, "error", "NormalisedWallDuration"),
        ("normalised cut to whole", "normalised", {NORMALISED: "{HEPscore23: 8.5}"}, "warning", NORMALISED),
        ("sync has nothing else", "sync", {"UpdateTime": "x"}, "error", "UpdateTime"),
        ("sync number of jobs", "sync", {"NumberOfJobs": None}, "error", "NumberOfJobs"),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) and " " in value else None,
)  # fmt: skip
def test_rule(rule: str, kind: str, changes: dict[str, str | None], level: str, field: str) -> None:
    assert found(message(kind, **changes)) == {(level, field)}, rule


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("APEL-individual-job-message: v0.2", True),
        ("APEL-sync-message: v0.9", True),
        ("APEL-summary-job-message:  v0.2", False),
        ("APEL-summary-job-message: v0.1", False),
        ("APEL-normalised-summary-message: v0.3", False),
        ("APEL-cloud: v1", False),
        ("no header", False),
    ],
)
def test_header_matching(header: str, taken: bool) -> None:
    base = JOB if "individual" in header else SYNC
    text = header + "\n" + "".join(f"{key}: {value}\n" for key, value in base.items())
    assert (check_text(text, NOW) == []) is taken


def test_blank_line_in_a_record() -> None:
    assert found(message("sync").replace("Month:", "\nMonth:")) == {("error", "")}


def test_line_without_a_colon() -> None:
    assert found(message("sync", SubmitHost="a\nb")) == {("error", "")}


@pytest.mark.parametrize("char", ["\x0b", "\x0c", "\x1c", "\x1e"])
def test_splitlines_characters_break_a_line(char: str) -> None:
    assert found(message("sync", SubmitHost=f"a{char}b")) == {("error", "")}


def test_percents_separate_records_anywhere() -> None:
    assert ("error", "") in found(message("job", LocalJobId="a%%b"))


def test_duplicate_key_last_wins() -> None:
    assert found(message("sync") + "Month: 11\n") == {("warning", "Month")}


def test_equal_keys_replace_each_other() -> None:
    for kind in ("job", "summary", "sync"):
        twice = message(kind) + "%%\n" + message(kind, Site="s ").split("\n", 1)[1]
        assert found(twice) == {("warning", "")}


def test_a_byte_order_mark_spoils_the_header() -> None:
    assert ("error", "") in found("\ufeff" + message("sync"))


def test_not_ascii() -> None:
    assert found(message("job", Queue="\u00e9")) == {("error", "")}


def test_pkcs7_media_type() -> None:
    assert found(message("job", Queue="application/pkcs7-mime")) == {("error", "")}


def test_an_empty_message_stops_the_loader() -> None:
    assert found(" \n") == {("error", "")}


def test_a_header_without_records_is_taken() -> None:
    assert found(HEADERS["sync"]) == {("warning", "")}


@given(hostile_text, hostile_text)
def test_no_text_makes_a_problem(one: str, two: str) -> None:
    check_text(one, NOW)
    for header in HEADERS.values():
        check_text(f"{header}\n{one}: {two}\nSite: {one}\nServiceLevel: {two}\nMonth: {two}\nYear: 1\n", NOW)
