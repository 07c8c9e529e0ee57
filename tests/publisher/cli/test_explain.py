"""render --explain: from a value of a record back to the facts and rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher import plugins
from tests.publisher.add_on import DESCRIBED_NAMES, install
from tests.publisher.cli.program import WHOLE, Program

pytestmark = pytest.mark.inside


def test_values_facts_and_rules(collected: Program) -> None:
    done = collected("render", "ogf-ur", "--explain", "1000003", "--json").ok()
    (record,) = done.object["records"]
    values = {value["field"]: value for value in record["values"]}
    assert record["source"] == "ce1"
    assert record["held"] is None
    assert values["WallDuration"]["value"] == "PT15461S"
    assert values["WallDuration"]["facts"] == {"wall_ms": 15_461_000}
    assert "half a second up" in values["WallDuration"]["rule"]
    assert values["SubmitTime"]["settings"] == ["ur_extensions"]


def test_what_the_configuration_added_is_reported(collected: Program) -> None:
    """Uses the only job of the fixture that has no benchmark in its source."""
    (record,) = collected("render", "emi-car", "--explain", "1000026", "--json").ok().object["records"]
    assert "benchmarks" in record["added"]
    (level,) = [value for value in record["values"] if value["field"].startswith("ServiceLevel")]
    assert level["value"] == "14.2"
    assert "benchmarks (configuration)" in collected("render", "emi-car", "--explain", "1000026").ok().out


def test_a_table_for_people(collected: Program) -> None:
    done = collected("render", "emi-car", "--explain", "1000003").ok()
    line = next(line for line in done.out.splitlines() if "Site" in line)
    assert "EXAMPLE-SITE" in line
    assert "name of the site in the configuration" in line


def test_what_cannot_be_explained(collected: Program) -> None:
    assert collected("render", "ogf-ur", "--explain", "nobody").code == 2
    for name in ("apel-sync", "utilization"):
        done = collected("render", name, "--explain", "1000003")
        assert (done.code, "has no records of single jobs" in done.err) == (2, True)
    assert "unknown format 'nosuch'" in collected("render", "nosuch", "--explain", "1000003").err


def test_a_record_of_an_add_on_is_explained_by_its_descriptor(
    tmp_path: Path, collected: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, plugins.FORMATS, mine=DESCRIBED_NAMES)
    (record,) = collected("render", "mine", "--explain", "1000003", "--json").ok().object["records"]
    (value,) = record["values"]
    assert (value["field"], value["rule"], list(value["facts"])) == ("message", "the name of the job", ["name"])


def test_a_summary_shows_its_jobs_and_what_each_brings(collected: Program) -> None:
    (record,) = collected("render", "apel-summary", "--explain", "1000003", "--json").ok().object["records"]
    values = {value["field"]: value for value in record["values"]}
    group = record["group"]
    assert values["NumberOfJobs"]["value"] == str(group["jobs"])
    assert len(group["parts"]) == group["jobs"] == sum(group["sources"].values())
    assert record["record_id"] in {part["record_id"] for part in group["parts"]}
    assert values["WallDuration"]["value"] == str(sum(part["wall_ms"] for part in group["parts"]) // 1000)
    assert "sum of its jobs" in values["WallDuration"]["rule"]
    ends = {part["record_id"]: part["end"] for part in group["parts"]}
    assert values["EarliestEndTime"]["value"] == str(ends[group["earliest"]])
    assert values["LatestEndTime"]["value"] == str(ends[group["latest"]])
    assert group["spelled_by"] in ends
    assert "UTC month" in values["Month"]["rule"]


def test_a_summary_shows_the_rules_of_the_configuration(collected: Program) -> None:
    """The only job of the fixture that has no benchmark in its source is alone in its group."""
    (record,) = collected("render", "apel-summary", "--explain", "1000026", "--json").ok().object["records"]
    assert record["added"] == ["benchmarks"]
    assert record["group"]["jobs"] == 1
    said = collected("render", "apel-summary", "--explain", "1000026").ok().out
    assert "1 job: 1 from source ce1" in said
    assert "benchmarks (configuration)" in said


def test_a_held_job_has_the_reason_that_jobs_gives(fresh: Program) -> None:
    fresh.configure(WHOLE.replace('complete_since = "2026-09-01"', 'complete_since = "2026-12-01"'))
    fresh("collect").ok()
    fresh("publish")
    (known,) = fresh("jobs", "1000003", "--json").ok().object["records"]
    reason = known["targets"]["summaries"]["reason"]
    assert "complete_since" in reason
    command = ("render", "apel-summary", "--target", "summaries", "--explain", "1000003")
    assert fresh(*command, "--json").ok().object["records"][0]["held"] == reason
    assert f"held: {reason}" in fresh(*command).ok().out
