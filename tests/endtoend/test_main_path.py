"""The main job on real sockets with TLS: what is in the database is at the services, each once, whatever happens.

The oracle everywhere is conservation (`tests.oracle`).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from publisher.simulator import Fault
from tests import oracle
from tests.endtoend.rehearsal import Rehearsal
from tests.extent import short_or_whole
from tests.generators import arc_database
from tests.oracle import arc_runs as selected

JOBS = short_or_whole(6_500, 10_000)
"""Of so many, a worker process reads the last pages."""
TARGETS = '[targets.neic]\n{sgas}\n[targets.cars]\n{ams}records = "emi-car"\n'


def seconds(duration: str | None) -> int:
    """Seconds of a duration as we write them: PT123S."""
    assert duration is not None
    assert duration.startswith("PT")
    assert duration.endswith("S")
    return int(duration[2:-1])


def one_late_one_changed(database: Path) -> None:
    """Let a job appear that ended before all others, and let the one that ended last change."""
    with closing(sqlite3.connect(database)) as connection, connection:
        first, last = (
            connection.execute(
                f"SELECT RecordID FROM AAR WHERE StatusID = 1 ORDER BY EndTime {order} LIMIT 1"
            ).fetchone()
            for order in ("ASC", "DESC")
        )
        reported = [row[1] for row in connection.execute("PRAGMA table_info(AAR)")]
        columns = ", ".join(name for name in reported if name not in {"RecordID", "JobID", "LocalJobID"})
        late = connection.execute(
            f"INSERT INTO AAR (JobID, LocalJobID, {columns}) "
            f"SELECT 'late', '77', {columns} FROM AAR WHERE RecordID = ?",
            first,
        )
        connection.execute(
            "INSERT INTO JobExtraInfo SELECT ?, InfoKey, InfoValue FROM JobExtraInfo WHERE RecordID = ?",
            (late.lastrowid, *first),
        )
        connection.execute("UPDATE AAR SET UsedWalltime = UsedWalltime + 5 WHERE RecordID = ?", last)


def states(target: dict[str, Any]) -> int:
    """All jobs of a target, in whatever state."""
    names = ("accepted", "waiting", "in_flight", "rejected", "held", "waived", "superseded")
    return sum(target[name] for name in names)


def test_jobs_are_at_both_services_exactly_once(site: Rehearsal) -> None:
    arc_database.create(site.database, JOBS, 1)
    site.configure(TARGETS)
    expected = selected(site.database)

    first = site.json("run")

    assert first["targets"]["neic"]["accepted"] == first["targets"]["cars"]["accepted"] == len(expected)
    held = site.simulator.sgas.holdings()
    assert held.keys() == expected.keys()
    assert {record.received for record in held.values()} == {1}
    at_sgas = {
        item.record_id: (seconds(item.wall), sum(map(seconds, item.cpu))) for item in site.simulator.sgas.records()
    }
    assert at_sgas == expected
    apel = site.simulator.apel.holdings()
    assert apel.rejected == ()
    assert apel.record_ids == dict.fromkeys(expected, 1)
    assert sum(int(row.fields["WallDuration"]) for row in apel.jobs.values()) == sum(
        wall for wall, _ in expected.values()
    )

    posts = site.simulator.sgas.stats()["posts"]
    messages = len(site.simulator.ams.messages())
    again = site.json("run")

    assert [(target["accepted"], target["batches"]) for target in again["targets"].values()] == [(0, 0), (0, 0)]
    assert site.simulator.sgas.stats()["posts"] == posts
    assert len(site.simulator.ams.messages()) == messages


def test_late_changed_and_reappearing_jobs(site: Rehearsal) -> None:
    arc_database.create(site.database, 300, 2)
    site.configure(TARGETS)
    site.json("run")
    before = selected(site.database)
    one_late_one_changed(site.database)

    second = site.json("run")

    after = selected(site.database)
    assert len(after) == len(before) + 1
    assert second["sources"]["ce1"]["new"] == 1
    assert second["sources"]["ce1"]["changed"] == 1
    assert second["targets"]["neic"]["accepted"] == 1  # the late one; SGAS would ignore the changed one
    assert second["targets"]["cars"]["accepted"] == 2  # APEL takes the new version in place of the old
    status = site.json("status")["targets"]
    assert status["neic"]["superseded"] == 1
    assert states(status["neic"]) == states(status["cars"]) == len(after)
    apel = site.simulator.apel.holdings()
    assert sum(int(row.fields["WallDuration"]) for row in apel.jobs.values()) == sum(wall for wall, _ in after.values())

    # The same jobs under another name of their source: nothing is new, nothing is sent.
    text = site.configuration.read_text(encoding="utf-8").replace("[sources.ce1]", "[sources.renamed]")
    site.configuration.write_text(text, encoding="utf-8")
    third = site.json("run")
    assert third["sources"]["renamed"]["new"] == 0
    assert third["targets"]["neic"]["accepted"] == third["targets"]["cars"]["accepted"] == 0


@pytest.mark.parametrize("stored", [True, False], ids=["after the service took it", "before the service took it"])
def test_killed_in_the_middle_nothing_is_lost_and_one_batch_a_worker_at_most_is_sent_twice(
    site: Rehearsal, stored: bool
) -> None:
    arc_database.create(site.database, 2_000, 3)
    site.configure("[targets.neic]\n{sgas}batch_records = 50\nworkers = 2\n")
    expected = selected(site.database)
    site.simulator.faults.replace([Fault("hang", service="sgas", stored=stored, skip=20, count=1)])

    site.killed_at_first_fault("run")

    site.simulator.faults.replace([])
    assert len(site.simulator.sgas.holdings()) < len(expected)
    site.json("run")
    held = site.simulator.sgas.holdings()
    assert held.keys() == expected.keys()
    assert len(books_balance(site, "neic").twice) <= 2 * 50, "one batch a worker"
    status = site.json("status")["targets"]["neic"]
    assert (status["accepted"], states(status)) == (len(expected), len(expected))


def test_a_service_that_answers_500_to_everything_rejects_nothing(site: Rehearsal) -> None:
    arc_database.create(site.database, 1_000, 4)
    site.configure('[targets.neic]\n{sgas}\n[targets.cars]\n{ams}records = "emi-car"\n')
    expected = selected(site.database)
    site.simulator.faults.replace([Fault("status", code=500)])

    down = site.json("run", code=1)

    for target in down["targets"].values():
        assert (target["accepted"], target["rejected"], target["waiting"]) == (0, 0, len(expected))
    assert site.simulator.sgas.stats()["posts"] < 60
    site.simulator.faults.replace([])
    site.json("run")
    assert site.simulator.sgas.holdings().keys() == expected.keys()
    assert site.simulator.apel.holdings().record_ids.keys() == expected.keys()


def books_balance(site: Rehearsal, target: str) -> oracle.Balance:
    """The ledger of an SGAS target against the database and the service: nothing may be lost."""
    store = site.folder / "state" / "store.db"
    arrived = {record_id: record.received for record_id, record in site.simulator.sgas.holdings().items()}
    return oracle.assert_conserved(selected(site.database), oracle.ledger(oracle.rows_of(store), target), arrived)


def one_poisoned_in_a_thousand(site: Rehearsal, jobs: int) -> None:
    """Each is rejected alone, with its reason, in less than three times the posts of a clean run.

    Cutting in halves finds one bad record among 100 in 7 posts of which most deliver; the others of its batch go in one
    more, and each suspect gets a second try: 10 posts for each, and so twice those of a clean run.
    """
    arc_database.create(site.database, jobs, 5)
    site.configure("[targets.neic]\n{sgas}batch_records = 100\n")
    expected = selected(site.database)
    poisoned = sorted(expected)[:: len(expected) // (jobs // 1000)][: jobs // 1000]
    texts = frozenset(f'"{record_id}"' for record_id in poisoned)
    site.simulator.faults.replace([Fault("status", code=500, service="sgas", texts=tuple(texts))])

    done = site.json("run", code=3)["targets"]["neic"]

    assert (done["accepted"], done["rejected"]) == (len(expected) - len(poisoned), len(poisoned))
    assert site.simulator.sgas.holdings().keys() == expected.keys() - set(poisoned)
    listed = site.json("records", "list", "--state", "rejected")["records"]
    assert sorted(item["record_id"] for item in listed) == sorted(poisoned)
    assert all("HTTP 500" in item["reason"] for item in listed)
    clean = len(expected) // 100 + 1
    assert site.simulator.sgas.stats()["posts"] <= 3 * clean
    assert len(books_balance(site, "neic").twice) <= 1 + len(poisoned) // 50, "records that show the service is well"


def test_one_poisoned_record_in_a_thousand_stops_only_itself(site: Rehearsal) -> None:
    one_poisoned_in_a_thousand(site, short_or_whole(2_000, 5_000))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_poisoned_records_among_a_hundred_thousand(site: Rehearsal) -> None:
    one_poisoned_in_a_thousand(site, 101_000)


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ('type = "sgas"\nurl = "https://localhost:9/sgas"\nattempts = 1\n', 1),
        ('type = "sgas"\nurl = "https://no-such-name.invalid/sgas"\nattempts = 1\n', 1),
        ('{sgas}[targets.bad.credentials]\nca_file = "{ca}"\n', 4),
    ],
    ids=["port closed", "name does not resolve", "server not trusted"],
)
def test_a_target_that_cannot_be_reached_stops_only_itself(
    site: Rehearsal, table: str, code: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from publisher.simulator.pki import make_pki

    arc_database.create(site.database, 200, 6)
    other = make_pki(tmp_path_factory.mktemp("other") / "pki")
    site.configure("[targets.neic]\n{sgas}\n[targets.bad]\n" + table.replace("{ca}", str(other.ca_file)))
    expected = selected(site.database)

    done = site.command("run", "--json")

    assert done.code in {1, code}
    answer = done.object["targets"]
    assert answer["neic"]["accepted"] == len(expected)
    assert (answer["bad"]["accepted"], answer["bad"]["waiting"]) == (0, len(expected))
    assert answer["bad"]["error"]
    assert "Traceback" not in done.err
    assert [line for line in done.err.splitlines() if line.startswith("bad: ")]


def test_summaries_and_sync_say_what_the_jobs_say(site: Rehearsal) -> None:
    arc_database.create(site.database, 2_000, 7)
    site.configure('[targets.apel]\n{ams}records = "apel-summary"\nversion = "0.4"\n')
    expected = selected(site.database)

    site.json("run")

    apel = site.simulator.apel.holdings()
    assert apel.rejected == ()
    rows = [row.fields for row in apel.summaries.values()]
    assert sum(int(row["NumberOfJobs"]) for row in rows) == len(expected)
    assert sum(int(row["NumberOfJobs"]) for row in (row.fields for row in apel.sync.values())) == len(expected)
    assert sum(int(row["WallDuration"]) for row in rows) == sum(wall for wall, _ in expected.values())
    assert sum(int(row["CpuDuration"]) for row in rows) == sum(cpu for _, cpu in expected.values())
