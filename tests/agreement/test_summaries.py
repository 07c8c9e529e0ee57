"""Our summaries v0.2 and sync counts carry what ARC's publisher gives, group by group.

ARC's rows are compared by the receiver's key. Where they differ:

- SubmitHost: with `submit_host = "url"` it is ARC 6.17's; the default names the interface, as later releases
  of ARC do (defects 14 and 15 of the facts on formats, 5.1).
- VOGroup and VORole: with `vo_spelling = "arc-6.17"` they are ARC 6.17's; the default is the convention (defect 19).
- Groups folded: ARC sums runs of several VO groups under the group of one of them (defects 20 and 41): `FOLDED`.
- Sync counts of one URL: ARC sends one for each interface, of which the receiver keeps the last (defects 14 and 20);
  ours is their sum.
- VO: ARC's empty text and our `None` are both the server's null (facts on formats, 4.1).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Final

import pytest

from formats.apel.fold import Fold, SyncFold
from formats.job import Job
from formats.registry import totals_format
from formats.view import View
from tests.agreement.fields import records_of_text
from tests.agreement.test_records import AS_ARC, DEFAULT

SUMMARY = "APEL-summary-job-message: v0.2"
SYNC = "APEL-sync-message: v0.1"
Row = dict[str, str]
Key = tuple[str | float, ...]

KEY: Final = (
    "Site", "Month", "Year", "GlobalUserName", "VO", "VORole", "VOGroup", "SubmitHost", "InfrastructureType",
    "ServiceLevelType", "ServiceLevel", "NodeCount", "Processors",
)  # fmt: skip
"""The receiver's primary key (facts on formats, 4.8)."""
SUMS: Final = ("WallDuration", "CpuDuration", "NumberOfJobs")

FOLDED: Final = {
    ("7", "/DC=org/DC=example/C=SI/O=Grid/OU=Univ0/CN=Bo Aas 0000", "/atlas/se"): {
        "/atlas/Role",
        "/atlas",
        "/atlas/se",
    },
    ("9", "/DC=org/DC=example/C=SI/O=Grid/OU=Univ0/CN=Bo Aas 0000", "/atlas/se"): {"/atlas/Role", "/atlas/se"},
    ("9", "/DC=org/DC=example/C=SI/O=Grid/OU=Univ0/CN=Bo Aas 0000", "/atlas"): {"/atlas", "/atlas/se"},
}
"""By month, user and VO group of ARC's row: the groups that its runs have (defects 20 and 41)."""


def summaries(view: View, jobs: Iterable[Job]) -> list[Row]:
    """The fields of our summaries of these runs."""
    fold = Fold(view)
    for job in jobs:
        fold.add(job)
    renderer = totals_format("apel-summary", view)
    header, rows = records_of_text(renderer.message([renderer.record(group).body for group in fold.groups()]))
    assert header == SUMMARY
    return rows


def counts(view: View, jobs: Iterable[Job]) -> list[Row]:
    """The fields of our sync counts of these runs."""
    fold = SyncFold(view)
    for job in jobs:
        fold.add(job)
    renderer = totals_format("apel-sync", view)
    header, rows = records_of_text(renderer.message([renderer.record(count).body for count in fold.groups()]))
    assert header == SYNC
    return rows


def key_of(row: Row, leave_out: tuple[str, ...] = ()) -> Key:
    """A row's key as the receiver compares it: no VO is `None`, a score is a number."""
    null = {**row, "VO": row["VO"] or "None"}
    return tuple(float(null[name]) if name == "ServiceLevel" else null[name] for name in KEY if name not in leave_out)


def rest_of(rows: Iterable[Row]) -> tuple[int, ...]:
    """Sums and ends of rows together."""
    held = list(rows)
    return (
        *(sum(int(row[name]) for row in held) for name in SUMS),
        min(int(row["EarliestEndTime"]) for row in held),
        max(int(row["LatestEndTime"]) for row in held),
    )


def by(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Rows by a key."""
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def folded(row: Row) -> set[str] | None:
    """The groups that ARC folded into this row of its; None for the others."""
    groups = FOLDED.get((row["Month"], row["GlobalUserName"], row["VOGroup"]))
    return groups if groups and int(row["NumberOfJobs"]) == len(groups) else None


@pytest.fixture(scope="module")
def arc(arc_text: dict[str, list[Row]]) -> dict[Key, Row]:
    """ARC's summaries by key."""
    rows = {key_of(row): row for row in arc_text[SUMMARY]}
    assert len(rows) == len(arc_text[SUMMARY]) == 183
    return rows


def test_the_keys_of_arc_are_ours_with_the_switches_of_a_site_that_moves(arc: dict[Key, Row], jobs: list[Job]) -> None:
    ours = {key_of(row): row for row in summaries(AS_ARC, jobs)}
    assert set(arc) <= set(ours)
    assert len(set(ours) - set(arc)) == sum(len(groups) - 1 for groups in FOLDED.values())


def test_every_group_carries_arcs_values(arc: dict[Key, Row], jobs: list[Job]) -> None:
    ours = {key_of(row): row for row in summaries(AS_ARC, jobs)}
    alike = {key: row for key, row in arc.items() if not folded(row)}
    assert len(alike) == len(arc) - len(FOLDED)
    for key, row in alike.items():
        assert list(ours[key]) == list(row), "the same fields in the same order"
        assert {**ours[key], "VO": "", "ServiceLevel": ""} == {**row, "VO": "", "ServiceLevel": ""}


def test_what_arc_folds_together_adds_up(arc: dict[Key, Row], jobs: list[Job]) -> None:
    """The list of folded groups is true: each is there, and its runs have the groups that it says."""
    without = ("VOGroup", "VORole")
    ours = by(summaries(AS_ARC, jobs), lambda row: key_of(row, without))
    merged = [row for row in arc.values() if folded(row)]
    assert len(merged) == len(FOLDED)
    for row in merged:
        parts = ours[key_of(row, without)]
        assert {part["VOGroup"] for part in parts} == folded(row)
        assert rest_of(parts) == rest_of([row])


def as_arc(row: Row) -> Row:
    """A row of the default spelling in ARC 6.17's."""
    url = row["SubmitHost"].removeprefix("arcrest:").removeprefix("internal:")
    group = "/" if row["VOGroup"] == "None" else row["VOGroup"]
    return {
        **row,
        "SubmitHost": url,
        "VOGroup": f"{group}/Role" if row["VORole"] != "None" else group,
        "VORole": "Role=NULL",
    }


def test_the_default_spelling_says_the_same_in_other_words(jobs: list[Job]) -> None:
    default = summaries(DEFAULT, jobs)
    assert {row["SubmitHost"].partition(":")[0] for row in default} == {"arcrest", "internal", "https", "gsiftp"}
    assert {row["VORole"] for row in default} == {"None", "Role=production", "Role=pilot"}
    ours = by((as_arc(row) for row in default), key_of)
    theirs = {key_of(row): row for row in summaries(AS_ARC, jobs)}
    assert {key: rest_of(rows) for key, rows in ours.items()} == {key: rest_of([row]) for key, row in theirs.items()}


@pytest.mark.parametrize("view", [DEFAULT, AS_ARC], ids=["default", "as-arc"])
def test_sync_counts_are_arcs(view: View, arc_text: dict[str, list[Row]], jobs: list[Job]) -> None:
    def total(rows: Iterable[Row]) -> Counter[tuple[str, ...]]:
        found: Counter[tuple[str, ...]] = Counter()
        for row in rows:
            url = row["SubmitHost"].removeprefix("arcrest:").removeprefix("internal:")
            found[row["Site"], row["Year"], row["Month"], url] += int(row["NumberOfJobs"])
        return found

    rows = counts(view, jobs)
    assert total(rows) == total(arc_text[SYNC])
    assert list(rows[0]) == list(arc_text[SYNC][0]), "the same fields in the same order"


def test_arc_counts_one_url_several_times_and_we_once(arc_text: dict[str, list[Row]], jobs: list[Job]) -> None:
    def keys(rows: list[Row]) -> list[tuple[str, ...]]:
        return [(row["Year"], row["Month"], row["SubmitHost"]) for row in rows]

    theirs, ours = keys(arc_text[SYNC]), keys(counts(AS_ARC, jobs))
    assert (len(theirs), len(set(theirs))) == (31, 21)
    assert sorted(ours) == sorted(set(theirs))
