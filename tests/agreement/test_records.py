"""Our UR and CAR of each job carry what ARC's publisher gives, but for the differences listed with their reasons."""

from __future__ import annotations

import pytest

from formats.job import Job
from formats.registry import record_format
from formats.view import View
from tests.agreement.differences import CAR, CREATED, UR, ArcDifference
from tests.agreement.facts import Facts
from tests.agreement.fields import Fields, records_of_xml

DEFAULT = View(site="TEST-SITE")
AS_ARC = View(
    site="TEST-SITE",
    submit_host="url",
    vo_spelling="arc-6.17",
    vo_groups_for_sgas="arc",
    service_class_as_service_level=True,
    infrastructure_description="JURA-ARC-SLURM",
)
"""Every switch that a site sets which moves over from ARC 6.17 and keeps its history."""

TABLES = {"ogf-ur": UR, "emi-car": CAR}
CASES = [
    pytest.param(name, difference, id=f"{name}-{difference.field}")
    for name, table in TABLES.items()
    for difference in table
]


def ours(name: str, view: View, jobs: list[Job]) -> dict[str, Fields]:
    """Our records of a format, by record id."""
    renderer = record_format(name, view)
    return records_of_xml(renderer.message([renderer.record(job, CREATED).body for job in jobs]))


@pytest.fixture(scope="session")
def our_records(jobs: list[Job]) -> dict[str, dict[str, Fields]]:
    """Our records, by format and record id."""
    return {name: ours(name, DEFAULT, jobs) for name in TABLES}


@pytest.mark.parametrize("name", TABLES)
def test_the_same_jobs_under_the_same_record_ids(
    name: str, our_records: dict[str, dict[str, Fields]], arc_records: dict[str, dict[str, Fields]]
) -> None:
    assert len(arc_records[name]) == 193
    assert set(our_records[name]) == set(arc_records[name])


@pytest.mark.parametrize("name", TABLES)
def test_every_value_that_is_not_listed_is_arcs(
    name: str, our_records: dict[str, dict[str, Fields]], arc_records: dict[str, dict[str, Fields]]
) -> None:
    listed = {difference.field for difference in TABLES[name]}
    for record_id, arc in arc_records[name].items():
        our = our_records[name][record_id]
        assert {field: our[field] for field in our.keys() - listed} == {
            field: arc[field] for field in arc.keys() - listed
        }, record_id


@pytest.mark.parametrize(("name", "difference"), CASES)
def test_a_listed_difference_is_just_that(
    name: str,
    difference: ArcDifference,
    our_records: dict[str, dict[str, Fields]],
    arc_records: dict[str, dict[str, Fields]],
    facts: dict[str, Facts],
) -> None:
    differing = 0
    for record_id, arc in arc_records[name].items():
        our = our_records[name][record_id]
        expected = difference.value(arc, facts[str(arc["JobIdentity/GlobalJobId"][0])])
        assert our.get(difference.field) == expected, record_id
        differing += expected != arc.get(difference.field)
    assert differing == difference.records, "a difference that is not there is taken from the list"


@pytest.mark.parametrize(("name", "difference"), CASES)
def test_a_difference_has_a_reason(name: str, difference: ArcDifference) -> None:
    """A difference without a defect of ARC only adds or reorders, or has a switch, or names the publishing program."""
    assert difference.reason
    added = difference.reason.startswith(("added:", "reordered:"))
    names_the_program = difference.field in {"Middleware@version", "Middleware@description"}
    assert difference.defects or added or difference.switch or names_the_program, name
    assert all(1 <= number <= 42 for number in difference.defects)


@pytest.mark.parametrize("name", TABLES)
def test_what_is_added_is_not_in_arcs_record(name: str, arc_records: dict[str, dict[str, Fields]]) -> None:
    """Or the added values follow ARC's first value, which is the one that services use."""
    for difference in TABLES[name]:
        if difference.reason.startswith("added:") and difference.field != "UserIdentity/GroupAttribute[FQAN]":
            there = [record for record in arc_records[name].values() if difference.field in record]
            assert len(there) + difference.records <= len(arc_records[name]), difference.field


def test_the_first_fqan_of_a_car_is_arcs(
    our_records: dict[str, dict[str, Fields]], arc_records: dict[str, dict[str, Fields]]
) -> None:
    field = "UserIdentity/GroupAttribute[FQAN]"
    for record_id, arc in arc_records["emi-car"].items():
        assert our_records["emi-car"][record_id].get(field, ())[:1] == arc.get(field, ())


@pytest.mark.parametrize("name", TABLES)
def test_with_the_switches_set_their_differences_are_gone(
    name: str, jobs: list[Job], arc_records: dict[str, dict[str, Fields]]
) -> None:
    switched = [difference.field for difference in TABLES[name] if difference.switch]
    assert switched
    for record_id, our in ours(name, AS_ARC, jobs).items():
        arc = arc_records[name][record_id]
        assert {field: our.get(field) for field in switched} == {field: arc.get(field) for field in switched}
