"""The rules of the APEL server for text messages (facts on formats, 4; facts on receivers, 2), in the facts' order.

What `test_apel_check` breaks one at a time is not repeated. Each test is named after the rule.
"""

from __future__ import annotations

import msgspec
import pytest

from formats.apel.fold import Fold, SyncFold, normalised_seconds
from formats.apel.job import ApelJobFormat, read_job
from formats.apel.summary import SummaryFormat, read_group
from formats.apel.text import parse
from formats.check.apel import check_text
from formats.check.message import inspect_message
from formats.job import Benchmark, Job
from formats.rule_codes import CannotRenderError
from formats.rules import (
    JOB_03,
    JOB_04,
    MESSAGE_TYPES,
    NORMALISED_03,
    NORMALISED_04,
    SUMMARY_02,
    SUMMARY_04,
    SYNC_01,
    TEXTS,
    MessageType,
    type_of,
)
from formats.score import preferred_score, read_scores
from formats.view import View
from tests.formats.check.test_apel import BASES, HEADERS, JOB, NOW, SUMMARY, found, message
from tests.formats.test_summary import NOVEMBER, fold, job

TYPES = {kind: type_of(header, header.split(":")[0], header.split()[-1]) for kind, header in HEADERS.items()}
NEXT_MONTH = 1_796_083_200
VIEW = View(site="S")


def of(kind: str) -> MessageType:
    known = TYPES[kind]
    assert known is not None
    return known


def twice(kind: str, **changes: str | None) -> str:
    """A message of two records, the second with changes."""
    return message(kind) + "%%\n" + message(kind, **changes).split("\n", 1)[1]


def replaced(kind: str, **changes: str | None) -> bool:
    """Whether the second record has the first one's key."""
    return any("which it replaces" in one.rule for one in check_text(twice(kind, **changes), NOW))


def rendered(**changes: object) -> dict[str, str]:
    renderer = ApelJobFormat(VIEW)
    return parse(renderer.message([renderer.record(job(**changes), 0).body]).decode()).records[0].fields


# --- 4.1, syntax


def test_the_whole_text_is_stripped_first() -> None:
    assert check_text("\n \n" + message("job") + "\n\n", NOW) == []


def test_lines_are_split_at_the_first_colon_and_both_sides_trimmed() -> None:
    (record,) = parse("T: v1\n  SubmitHost \t:  https://ce:443/a:b \n").records
    assert record.fields == {"SubmitHost": "https://ce:443/a:b"}


def test_keys_are_case_sensitive() -> None:
    assert ("error", "site") in found(message("sync") + "site: S\n")


@pytest.mark.parametrize("kind", HEADERS)
@pytest.mark.parametrize("null", [None, "", "none", "None", "NULL", " null "])
def test_mandatory_fields_missing_or_null(kind: str, null: str | None) -> None:
    for field in sorted(of(kind).mandatory):
        assert ("error", field) in found(message(kind, **{field: null})), field


def test_mandatory_fields_are_those_of_the_facts() -> None:
    summary = {"Site", "Month", "Year", "WallDuration", "CpuDuration", "NumberOfJobs"}
    job_ = {"Site", "LocalJobId", "WallDuration", "CpuDuration", "StartTime", "EndTime"}
    normalised = {*summary, "NormalisedWallDuration", "NormalisedCpuDuration"}
    assert [known.mandatory for known in (JOB_03, JOB_04)] == [job_] * 2
    assert [known.mandatory for known in (SUMMARY_02, SUMMARY_04)] == [summary] * 2
    assert [known.mandatory for known in (NORMALISED_03, NORMALISED_04)] == [normalised] * 2
    assert SYNC_01.mandatory == {"Site", "NumberOfJobs", "Month", "Year"}


def test_one_record_class_per_message() -> None:
    two = message("sync") + message("summary")
    reported = [one.rule for one in check_text(two, NOW) if one.level == "error"]
    assert any("the header of another message" in rule for rule in reported)


def test_one_bad_record_rejects_the_message() -> None:
    assert inspect_message(twice("job").encode(), NOW).taken
    assert not inspect_message(twice("job", WallDuration="-1").encode(), NOW).taken


# --- 4.2, headers


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("APEL-individual-job-message: v0.2", JOB_03),
        ("APEL-individual-job-message: v0.3", JOB_03),
        ("APEL-individual-job-message: v0.4", JOB_04),
        ("APEL-summary-job-message: v0.1", None),
        ("APEL-summary-job-message: v0.2", SUMMARY_02),
        ("APEL-summary-job-message: v0.3", NORMALISED_03),
        ("APEL-summary-job-message: v0.4", SUMMARY_04),
        ("APEL-normalised-summary-message: v0.2", None),
        ("APEL-normalised-summary-message: v0.3", None),
        ("APEL-normalised-summary-message: v0.4", NORMALISED_04),
        ("APEL-sync-message: v0.1", SYNC_01),
        ("APEL-sync-message: v9", SYNC_01),
        ("APEL-summary-job-message: v0.2  ", SUMMARY_02),
        ("APEL-summary-job-message:  v0.2", None),
    ],
)
def test_headers_accepted(header: str, expected: MessageType | None) -> None:
    parsed = parse(f"{header}\nSite: S\n")
    assert type_of(parsed.header, parsed.kind, parsed.version) is expected


@pytest.mark.parametrize("key", ["ScalingFactor", "UserFQAN", "LocalJobID"])
def test_key_names_of_version_0_1_are_unknown(key: str) -> None:
    assert ("error", key) in found(message("job", **{key: "1"}))


# --- 4.3, jobs


@pytest.mark.parametrize("field", [field for field in TEXTS if field in JOB_03.fields and field != "ServiceLevelType"])
def test_texts_have_the_length_of_their_columns(field: str) -> None:
    longest = {"Queue": 100, "InfrastructureDescription": 100, "InfrastructureType": 20}.get(field, 255)
    assert ("error", field) not in found(message("job", **{field: "x" * longest}))
    assert ("error", field) in found(message("job", **{field: "x" * (longest + 1)}))


def test_who_and_where_are_none_where_they_are_missing() -> None:
    nobody = rendered(user_dn=None, vo=None, fqans=(), endpoint_url=None, cluster=None)
    assert {nobody[key] for key in ("SubmitHost", "GlobalUserName", "VO", "VOGroup", "VORole")} == {"None"}


@pytest.mark.parametrize(
    ("fqan", "vo", "group", "role"),
    [
        ("/atlas/no/Role=production", "atlas", "/atlas/no", "Role=production"),
        ("/atlas/no;/cms/Role=pilot", "atlas", "/atlas/no", "None"),
        ("/atlas/Role=NULL", "atlas", "/atlas", "None"),
        ("atlas", "atlas", "None", "None"),
    ],
)
def test_fqan_gives_vo_group_and_role_of_its_first(fqan: str, vo: str, group: str, role: str) -> None:
    sent = rendered(vo=None, fqans=(fqan,))
    assert (sent["VO"], sent["VOGroup"], sent["VORole"]) == (vo, group, role)


def test_fqan_overrides_so_it_is_never_sent_beside_vo_group_and_role() -> None:
    assert "FQAN" not in rendered(fqans=("/atlas/Role=production",), vo="cms")
    assert read_job(parse(message("job", FQAN="/cms/Role=x")).records[0]).fqans == ("/cms/Role=x",)


@pytest.mark.parametrize("field", ["WallDuration", "CpuDuration", "Processors", "NodeCount", "MemoryReal"])
@pytest.mark.parametrize("wrong", ["-1", "1.5", str(2**31), "many"])
def test_numbers_are_whole_not_negative_and_of_31_bits(field: str, wrong: str) -> None:
    assert found(message("job", **{field: wrong})) == {("error", field)}
    assert found(message("job", **{field: str(2**31 - 1)})) == set()


def test_processors_and_node_count_0_are_unknown() -> None:
    assert found(message("job", Processors="0", NodeCount=None)) == set()
    sent = rendered(nodes=None, cores=None)
    assert (sent["Processors"], sent["NodeCount"]) == ("0", "0")


def test_start_time_0_is_accepted_and_wall_beyond_end_minus_start() -> None:
    assert found(message("job", StartTime="0", WallDuration="2000000000")) == set()


def test_end_time_is_at_most_two_days_ahead() -> None:
    assert found(message("job", EndTime=str(NOW + 2 * 86_400))) == set()
    assert found(message("job", EndTime=str(NOW + 2 * 86_400 + 1))) == {("error", "EndTime")}


def test_times_are_sent_as_epoch_seconds() -> None:
    sent = rendered()
    assert (sent["StartTime"], sent["EndTime"]) == (str(NOVEMBER), str(NOVEMBER + 100))


@pytest.mark.parametrize("score_type", ["si2k", "SI2K", "hepspec", "HEPSPEC", "hepscore23", "HEPscore23"])
def test_service_level_types_in_any_case(score_type: str) -> None:
    assert found(message("job", ServiceLevelType=score_type)) == set()
    assert found(message("job-0.4", ServiceLevel=f"{{{score_type}: 1.0}}")) == set()


def test_service_level_and_its_type_both_or_neither() -> None:
    assert ("error", "ServiceLevelType") in found(message("job", ServiceLevelType=None))
    assert ("error", "ServiceLevel") in found(message("job", ServiceLevel=None))
    sent = rendered()
    assert (sent["ServiceLevelType"], sent["ServiceLevel"]) == ("HEPSPEC", "12.26")


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("{hepspec: 10, HEPscore23: 11.5}", ("HEPscore23", 11.5)),
        ("{Si2k: 2500, hepspec: 10}", ("HEPSPEC", 10.0)),
        ("{si2k: 2500}", ("Si2k", 2500.0)),
        ("{custom: 1}", None),
    ],
)
def test_hepscore23_before_hepspec_before_si2k(text: str, best: tuple[str, float] | None) -> None:
    assert preferred_score(read_scores(text)) == best


# --- 4.4 and 4.5, summaries


@pytest.mark.parametrize("field", ["Queue", "MachineName", "FQAN", "LocalJobId"])
@pytest.mark.parametrize("kind", ["summary", "summary-0.4", "normalised-0.3", "normalised"])
def test_summaries_do_not_know_the_fields_of_jobs(kind: str, field: str) -> None:
    assert found(message(kind, **{field: "x"})) == {("error", field)}


@pytest.mark.parametrize("kind", ["summary", "summary-0.4", "normalised-0.3", "normalised"])
def test_node_count_and_processors_and_service_level_are_not_null(kind: str) -> None:
    needed = {"NodeCount", "Processors"} | ({"ServiceLevel"} if "summary" in kind else set())
    assert of(kind).needed == needed
    for field in needed:
        assert ("error", field) in found(message(kind, **{field: None}))


def test_update_time_is_ignored() -> None:
    assert found(message("summary", UpdateTime="x")) == {("warning", "UpdateTime")}


def test_summary_without_a_service_level_type_is_stored_unchecked() -> None:
    assert found(message("summary", ServiceLevelType=None)) == {("warning", "ServiceLevelType")}


def test_earliest_and_latest_may_be_at_both_edges_of_the_month() -> None:
    edges = {"EarliestEndTime": str(NOVEMBER), "LatestEndTime": str(NEXT_MONTH)}
    assert found(message("summary", **edges)) == set()


def test_a_wrong_earliest_alone_is_refused() -> None:
    wrong = {"EarliestEndTime": str(NEXT_MONTH + 1), "LatestEndTime": None}
    assert found(message("summary", **wrong)) == {("error", "EarliestEndTime")}


def test_number_of_jobs_0_is_accepted() -> None:
    zeroed = {"NumberOfJobs": "0", "WallDuration": "0", "CpuDuration": "0", "EarliestEndTime": None}
    assert found(message("summary", **zeroed, LatestEndTime=None)) == set()


@pytest.mark.parametrize("kind", ["normalised-0.3", "normalised"])
def test_normalised_summaries_say_infrastructure_and_no_service_level(kind: str) -> None:
    for field in ("InfrastructureType", "ServiceLevel", "ServiceLevelType"):
        assert ("error", field) in found(message(kind, **{field: "grid"}))


def test_a_summary_header_0_3_with_a_plain_body_is_refused() -> None:
    text = message("summary").replace("v0.2", "v0.3")
    assert {("error", "InfrastructureType"), ("error", "NormalisedWallDuration")} <= found(text)


def test_normalised_0_3_is_plain_and_0_4_names_the_benchmark() -> None:
    field = "NormalisedWallDuration"
    assert found(message("normalised-0.3", **{field: "{HEPscore23: 1}"})) == {("error", field)}
    assert found(message("normalised", **{field: "1"})) == {("error", field)}


@pytest.mark.parametrize(("score_type", "factor"), [("HEPscore23", 1), ("HEPSPEC", 1), ("Si2k", 250)])
def test_normalised_is_seconds_times_score_si2k_by_250(score_type: str, factor: int) -> None:
    (group,) = fold([job(wall_ms=3_600_000, benchmarks=(Benchmark(score_type, 2500.0),))], normalised=True).groups()
    assert normalised_seconds(group.normalised_wall) == 3_600 * 2500 // factor


def test_negative_durations_count_nothing() -> None:
    with pytest.raises(CannotRenderError, match="WallDuration"):
        Fold(VIEW).add(job(wall_ms=-1000))


# --- 4.6, sync


def test_sync_has_no_range_checks() -> None:
    assert found(message("sync", Month="13", Year="0")) == {("warning", "Month"), ("warning", "Year")}


def test_sync_without_a_submit_host_is_none() -> None:
    assert found(message("sync", SubmitHost=None)) == set()


def test_sync_and_records_have_an_identical_submit_host() -> None:
    for run in (job(), job(endpoint_url=None, cluster="c.example.org"), job(endpoint_type="org.nordugrid.internal")):
        assert SyncFold(VIEW).add(run).submit_host == Fold(VIEW).add(run).submit_host
        sent = ApelJobFormat(VIEW).record(run, 0).body.decode()
        assert f"SubmitHost: {SyncFold(VIEW).add(run).submit_host}\n" in sent


# --- 4.7, VO fields and months


def test_vo_role_has_no_slash_and_vo_group_has_one() -> None:
    sent = rendered(fqans=("/atlas/no/Role=production",))
    assert (sent["VOGroup"], sent["VORole"]) == ("/atlas/no", "Role=production")


def test_month_and_year_are_those_of_the_end_in_utc() -> None:
    assert [(group.key.month, group.key.year) for group in fold([job(end=NOVEMBER - 1)]).groups()] == [(10, 2026)]
    assert [(group.key.month, group.key.year) for group in fold([job(end=NOVEMBER)]).groups()] == [(11, 2026)]


@pytest.mark.parametrize("status", ["running", "queued", "never_started"])
def test_only_finished_jobs(status: str) -> None:
    for add in (Fold(VIEW).add, SyncFold(VIEW).add, lambda run: ApelJobFormat(VIEW).record(run, 0)):
        with pytest.raises(CannotRenderError):
            add(job(status=status))


# --- 4.8, keys of REPLACE INTO


@pytest.mark.parametrize("field", ["Site", "LocalJobId", "EndTime"])
def test_key_of_job_records(field: str) -> None:
    assert not replaced("job", **{field: "1793491301"})


@pytest.mark.parametrize("field", ["SubmitHost", "MachineName", "Queue", "VO", "GlobalUserName", "Processors"])
def test_not_in_the_key_of_job_records(field: str) -> None:
    assert replaced("job", **{field: "2"})


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("Site", "T"), ("Month", "10"), ("Year", "2025"), ("GlobalUserName", "/CN=B"), ("VO", "cms"),
        ("VORole", "Role=x"), ("VOGroup", "/cms"), ("SubmitHost", "ce2"), ("InfrastructureType", "local"),
        ("ServiceLevelType", "Si2k"), ("ServiceLevel", "12.261"), ("NodeCount", "2"), ("Processors", "2"),
    ],
)  # fmt: skip
def test_key_of_summaries(field: str, other: str) -> None:
    assert not replaced("summary", **{field: other})
    if field.startswith("ServiceLevel"):
        return
    kind_field = "Infrastructure" if field == "InfrastructureType" else field
    assert not replaced("normalised", **{kind_field: other})


@pytest.mark.parametrize(
    "field", ["InfrastructureDescription", "EarliestEndTime", "WallDuration", "CpuDuration", "NumberOfJobs"]
)
def test_not_in_the_key_of_summaries(field: str) -> None:
    assert replaced("summary", **{field: "1793491201"})
    assert replaced("normalised", **{field: "1793491201"})


def test_key_of_sync_records() -> None:
    for field, other in {"Site": "T", "SubmitHost": "ce2", "Month": "10", "Year": "2025"}.items():
        assert not replaced("sync", **{field: other})
    assert replaced("sync", NumberOfJobs="4")


def test_keys_are_compared_without_case_and_trailing_blanks() -> None:
    assert replaced("job", LocalJobId="1 ", Site="s")
    assert replaced("summary", VO="ATLAS", SubmitHost="CE ")
    assert replaced("sync", SubmitHost="CE")


def test_service_level_is_distinguished_to_three_decimals() -> None:
    assert replaced("summary", ServiceLevel="12.2603")
    assert not replaced("summary", ServiceLevel="12.2606")


def test_normalised_summaries_distinguish_benchmarks_but_not_scores() -> None:
    runs = [job(), job(benchmarks=(Benchmark("HEPSPEC", 10.0),)), job(benchmarks=(Benchmark("Si2k", 2500.0),))]
    assert len(fold(runs, normalised=True)) == 2
    assert len(fold(runs)) == 3


def test_the_last_of_two_equal_keys_survives_so_none_is_sent_twice() -> None:
    made = fold([job(), job(user_dn="/O=grid/CN=ADA", vo="Atlas")])
    renderer = SummaryFormat(VIEW)
    text = renderer.message([renderer.record(group).body for group in made.groups()]).decode()
    assert [read_group(record).jobs for record in parse(text).records] == [2]


# --- facts on receivers, 2


def test_aur_is_not_supported() -> None:
    aur = b'<SummaryRecords xmlns="http://eu-emi.eu/namespaces/2012/11/aggregatedcomputerecord"/>'
    inspection = inspect_message(aur)
    assert not inspection.taken
    assert any("aggregated" in one.rule for one in inspection.violations)


def test_every_type_that_we_write_is_one_that_the_server_takes() -> None:
    assert {HEADERS[kind] for kind in HEADERS} == {f"{known.kind}: v{known.version}" for known in MESSAGE_TYPES}
    assert set(BASES) == set(HEADERS)
    assert set(JOB) | set(SUMMARY) <= {field for known in MESSAGE_TYPES for field in known.fields}


def test_a_run_with_any_names_is_one_record() -> None:
    run = msgspec.structs.replace(job(), queue="a%%b\nLocalJobId: 2", local_user="x\n\ny")
    assert isinstance(run, Job)
    renderer = ApelJobFormat(VIEW)
    (record,) = parse(renderer.message([renderer.record(run, 0).body]).decode()).records
    assert record.get("LocalJobId") == "1"
