"""After moving from ARC the union at the services has every job once: what ARC sent, and what we send in its place.

What ARC sent is in `fixtures/moving/arc/sent.json`: the keys and sums of the messages that the publishers of three
releases made of a plain copy of our accounting database, up to one instant.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from formats.calendar import month_bounds, month_of
from publisher.api import Publisher
from publisher.migrate.arc import from_arc
from publisher.publish.context import Tools
from publisher.simulator.apel import _read_text
from publisher.simulator.apel_tables import Table, Tables, read_car
from publisher.store.schema import State
from publisher.targets.base import Accepted, Message
from tests.generators.arc_database import load
from tests.publisher.site import NOW

PLAIN: Final = """
UPDATE JobExtraInfo SET InfoValue = 'x' WHERE InfoKey IN ('jobname', 'projectname');
UPDATE Users SET Name = '/DC=org/DC=example/CN=User ' || ID;
UPDATE AuthTokenAttributes SET AttrKey = 'vomsfqan' WHERE AttrKey = 'mainfqan' AND AttrValue = '/atlas';
"""
"""ARC sends messages that cannot be read where names are odd; some runs have a VO, and no primary VOMS attribute."""
ONLY_OF: Final = {
    "6.17": "UPDATE JobExtraInfo SET InfoValue = replace(InfoValue, 'HEPscore23:', 'HEPSPEC:');",
}
"""Up to 6.17 ARC does not know HEPscore23, and sends HEPSPEC 1.0 for it: the page says what to do then."""
CONF: Final = """
[lrms]
benchmark = HEPSPEC:12.26
[arex]
controldir = {folder}
[arex/jura]
vomsless_vo = example.org#/DC=org/CN=voms
[arex/jura/sgas:neic]
targeturl = https://sgas.example.org:6143/sgas
[arex/jura/apel:egi]
targeturl = https://msg.example.org
gocdb_name = EXAMPLE-SITE
apel_messages = {messages}
"""
CASES: Final = [
    ("6.17", "urs"),
    ("6.17", "summaries"),
    ("6.20", "urs"),
    ("6.20", "summaries"),
    ("6.20", "summaries-v04"),
    ("6.21", "urs"),
    ("6.21", "summaries"),
    ("6.21", "summaries-v04"),
]


class Sent(msgspec.Struct):
    """What ARC had sent."""

    delivered_until: int
    columns: dict[str, list[str]]
    releases: dict[str, dict[str, list[Any]]]


class Captured:
    """A service that takes everything and shows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: list[Message] = []

    def payload_limit_bytes(self) -> None:
        """No limit."""

    def post(self, message: Message) -> Accepted:
        """Take it."""
        self.messages.append(message)
        return Accepted(dict.fromkeys(message.record_ids, "1") or {"message": "1"})

    def check(self) -> list[Any]:
        """No findings."""
        return []

    def close(self) -> None:
        """Nothing to close."""


class Move:
    """A site that moved: `tables` is what APEL holds in the end, `records` what SGAS does, each with who sent it."""

    def __init__(self, folder: Path, fixtures: Path, release: str, messages: str) -> None:
        self.sent = msgspec.json.decode((fixtures / "moving" / "arc" / "sent.json").read_bytes(), type=Sent)
        self._rows = self.sent.releases[release]
        self._kind = messages
        (folder / "accounting").mkdir()
        self.database = folder / "accounting" / "accounting.db"
        load(fixtures / "arc" / "accounting.sql", self.database)
        state = (fixtures / "moving" / "arc" / "publishing.sql").read_text()
        marks = f"UPDATE AccountingTargets SET LastEndTime = {self.sent.delivered_until};"
        plain = PLAIN + ONLY_OF.get(release, "")
        for file, statements in ((self.database, plain), (folder / "accounting" / "publishing.db", state + marks)):
            with closing(sqlite3.connect(file)) as connection:
                connection.executescript(statements)
        (folder / "arc.conf").write_text(CONF.format(folder=folder, messages=messages))
        proposal = from_arc(folder / "arc.conf", None, "", release)
        found = proposal.config(folder / "publisher.toml")
        store = found.store.model_copy(update={"url": f"sqlite:///{folder}/store.db"})
        self.config = found.model_copy(update={"store": store})
        self.captured = {name: Captured(name) for name in self.config.targets}
        self.tables = Tables()
        self.records: dict[str, int] = dict.fromkeys(self._rows["records"], 1)
        self._load_what_arc_sent()
        self.before = {table: dict(rows) for table, rows in self.tables.rows.items()}

    def _load_what_arc_sent(self) -> None:
        tables: dict[str, Table] = {"urs": "jobs", "summaries": "summaries", "summaries-v04": "summaries"}
        table = tables[self._kind]
        kinds: list[tuple[Table, str]] = [(table, "jobs" if table == "jobs" else self._kind), ("sync", "sync")]
        for into, kind in kinds:
            for row in self._rows[kind]:
                self.tables.replace(into, dict(zip(self.sent.columns[into], row, strict=True)), "arc")

    def run(self) -> None:
        """Collect and publish; what is sent arrives."""
        tools = Tools(
            clock=lambda: NOW + 30 * 86_400, make_target=lambda name, _settings, _context: self.captured[name]
        )
        with Publisher(self.config, tools) as publisher:
            publisher.collect()
            delivered = publisher.publish()
            assert {name: each.error for name, each in delivered.items()} == dict.fromkeys(delivered)
            assert not publisher.listed(State.HELD)
        for message in self.captured["egi"].messages:
            self._arrive(message.payload)
        for message in self.captured["neic"].messages:
            for record in message.record_ids:
                self.records[record] = self.records.get(record, 0) + 1

    def _arrive(self, payload: bytes) -> None:
        if payload.lstrip().startswith(b"<"):
            for fields in read_car(payload, NOW + 30 * 86_400):
                self.tables.replace("jobs", fields, "ours")
            return
        table, records = _read_text(payload.decode("ascii"), NOW + 30 * 86_400)
        for fields in records:
            self.tables.replace(table, fields, "ours")

    # --- the oracle: ARC's own database

    def truth(self) -> list[tuple[str, int, int]]:
        """Id, end, and wall seconds of each job that ARC publishes."""
        query = (
            "SELECT a.JobID, a.EndTime, a.UsedWalltime FROM AAR a JOIN Status s ON s.ID = a.StatusID "
            "WHERE s.Name IN ('completed', 'failed')"
        )
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(query).fetchall()

    def months(self) -> tuple[Counter[str], Counter[str]]:
        """Jobs and wall seconds of the month of the move and of those after it, by month."""
        begin = month_bounds(month_of(self.sent.delivered_until))[0]
        jobs, wall_s = Counter[str](), Counter[str]()
        for _, end, wall in self.truth():
            if end >= begin:
                jobs[str(month_of(end).month)] += 1
                wall_s[str(month_of(end).month)] += wall
        return jobs, wall_s

    def sums(self, table: Table, column: str) -> Counter[str]:
        """Sums of a column by month, of the months that the truth has."""
        found = Counter[str]()
        for row in self.tables.rows[table].values():
            found[row.fields["Month"]] += int(row.fields[column])
        return Counter({month: number for month, number in found.items() if month in self.months()[0]})


@pytest.fixture(params=CASES, ids="-".join)
def moved(request: pytest.FixtureRequest, tmp_path: Path, fixtures: Path) -> Move:
    move = Move(tmp_path, fixtures, *request.param)
    move.run()
    return move


def test_apel_has_every_job_once_with_its_hours(moved: Move) -> None:
    jobs, wall_s = moved.months()
    assert sum(jobs.values()) > 20
    if moved.tables.rows["jobs"]:
        rows = moved.tables.rows["jobs"].values()
        ends_and_hours = Counter((int(row.fields["EndTime"]), int(row.fields["WallDuration"])) for row in rows)
        assert ends_and_hours == Counter((end, wall) for _, end, wall in moved.truth())
    else:
        assert moved.sums("summaries", "NumberOfJobs") == jobs
        assert moved.sums("summaries", "WallDuration") == wall_s
    assert moved.sums("sync", "NumberOfJobs") == jobs


def test_months_that_arc_completed_stay_as_it_sent_them(moved: Move) -> None:
    begin = str(month_of(moved.sent.delivered_until).month)
    for table in ("summaries", "sync"):
        for key, row in moved.before[table].items():
            if int(row.fields["Month"]) < int(begin):
                assert moved.tables.rows[table][key].publisher == "arc"


def test_sgas_has_every_job_under_one_id(moved: Move) -> None:
    ids = [name for name, _, _ in moved.truth()]
    assert len(moved.records) == len(ids)
    assert all(any(record.endswith(f"-{name}") for record in moved.records) for name in ids)
    assert set(moved.records.values()) == {1}, "and nothing that ARC had sent went again"


def test_with_the_spelling_of_another_release_the_month_of_the_move_is_counted_twice(
    tmp_path: Path, fixtures: Path
) -> None:
    """The proof can fail."""
    move = Move(tmp_path, fixtures, "6.21", "summaries")
    egi = move.config.targets["egi"].model_copy(update={"submit_host": "url"})
    move.config = move.config.model_copy(update={"targets": {**move.config.targets, "egi": egi}})
    move.run()
    assert sum(move.sums("summaries", "NumberOfJobs").values()) > sum(move.months()[0].values())


def test_the_fixture_is_of_our_invented_database(fixtures: Path) -> None:
    text = (fixtures / "moving" / "arc" / "sent.json").read_text()
    assert set(re.findall(r"CN=(\w+)", text)) == {"User"}
    assert json.loads(text)["delivered_until"] < NOW
