"""render --explain: from a value of a record back to the facts and rules."""

from __future__ import annotations

from tests.publisher.cli.program import Program


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


def test_what_the_configuration_added_is_told(collected: Program) -> None:
    """The one job of the fixture that has no benchmark of its own."""
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
    done = collected("render", "apel-summary", "--explain", "1000003")
    assert (done.code, "no record for each run" in done.err) == (2, True)
