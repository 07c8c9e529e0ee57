"""Long and unusual texts from outside, in every column with an index: none of them stops a run.

PostgreSQL accepts at most 2,704 bytes in an index, after compression: the texts here cannot be compressed.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from formats.identity import MOST_KEY_BYTES, index_key, record_key
from formats.job import Benchmark, Host, Transfer
from publisher.sources.base import Unreadable
from publisher.spool import spooler
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, store_url_of
from tests.publisher.store.server import PostgresqlServer
from tests.publisher.torque_cluster import NOW, TorqueCluster, torque_line

pytestmark = pytest.mark.either_store

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"
SCORE = {"type": "HEPscore23", "value": 10}


@functools.cache
def incompressible(length: int = 100_000, seed: int = 1, letters: str = _LETTERS) -> str:
    numbers = random.Random(seed).randbytes(length).decode("latin-1")
    return numbers.translate({number: letters[number % len(letters)] for number in range(256)})


def blah(file: Path, *numbers: str) -> None:
    """Write entries of a grid log for these jobs."""
    with file.open("a", encoding="utf-8") as log:
        for number in numbers:
            log.write(f'"timestamp=2026-11-01 00:30:00" "userDN=/DC=org/CN=Ada" "lrmsID={number}"\n')


IN_A_LINE = incompressible(60_000)
"""As much as a field may have in a line of a log."""


FIELDS = ("account", "user", "group", "queue", "jobname", "exec_host", "owner")


@pytest.mark.parametrize("records", ["apel-job", "ogf-ur", "apel-summary", "utilization"])
@pytest.mark.parametrize("length", [2_600, 4_000, 60_000])
def test_long_fields_of_a_log_stop_nothing(tmp_path: Path, records: str, length: int) -> None:
    cluster = TorqueCluster(tmp_path)
    cluster.source["benchmark"] = SCORE
    cluster.target["records"] = records
    if records == "utilization":
        cluster.target["period"] = "day"
    cluster.log(torque_line(1, NOW - 100_000))
    for number, field in enumerate(FIELDS):
        for place, end in ((number, NOW - 90_000), (number + 100, NOW - 80_000)):
            fields = {"jobname": "sim", field: incompressible(length, place)}  # each account has a name
            cluster.log(torque_line(100 + place, end, **fields))
    cluster.log(torque_line(2, NOW))
    cluster.run()
    assert cluster.sent()
    cluster.run()
    accepted, waiting, held = cluster.counts()
    with cluster.publisher() as publisher:
        unreadable = len(publisher.unreadable())
    assert accepted + held + waiting + unreadable == 2 + 2 * len(FIELDS)
    assert unreadable == 0 or length > 4_096, "more of a name is not read"
    assert waiting == 0 or records == "utilization", "a day that is not over"
    assert accepted >= 2


def test_a_long_line_that_is_not_a_record_stops_nothing_and_is_listed_once(tmp_path: Path) -> None:
    cluster = TorqueCluster(tmp_path)
    cluster.source["benchmark"] = SCORE
    lines = [f"11/20/2026 12:00:00;E;2.server;user={text}\n" for text in (IN_A_LINE, IN_A_LINE[::-1])]
    cluster.log(torque_line(1, NOW - 900), *lines, torque_line(3, NOW - 700))
    cluster.run()
    with cluster.publisher() as publisher:
        assert len(publisher.unreadable()) == 2
    assert cluster.counts() == (2, 0, 0)


def test_the_same_piece_of_unreadable_input_is_known_again(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    piece = Unreadable("accounting", 3, None, "no end time", os.urandom(65_536))
    site.sources["ce1"].add(piece, msgspec.structs.replace(piece, line=4), piece)
    site.collect()
    assert site.publisher.status().sources["ce1"].unreadable == 2


def test_a_file_with_a_name_that_is_not_text_stops_nothing(tmp_path: Path) -> None:
    cluster = TorqueCluster(tmp_path)
    cluster.source["benchmark"] = SCORE
    name = os.fsencode(cluster.folder) + b"/accounting/2026112\xff" + b"x" * 200
    with open(name, "w", encoding="utf-8") as file:  # noqa: PTH123 - a name in bytes
        file.write(torque_line(1, NOW - 900) + "11/20/2026 12:00:00;E;2.server;user=x\n")
    cluster.source["path"] = os.fsdecode(name)
    cluster.log(torque_line(3, NOW - 700))
    cluster.run()
    cluster.run()
    assert cluster.counts() == (1, 0, 0)
    with cluster.publisher() as publisher:
        assert [Path(each.file).name[:11] for each in publisher.unreadable()] == ["2026112\\udc"]


@pytest.mark.parametrize("end", ["\n", ""], ids=["whole", "unfinished"])
def test_what_is_known_of_a_file_with_such_a_name_is_not_damage(tmp_path: Path, end: str) -> None:
    """How far it was read, that its last line is incomplete, and that it is gone."""
    cluster = TorqueCluster(tmp_path)
    cluster.source["benchmark"] = SCORE
    log = os.fsencode(cluster.folder) + b"/accounting/2026112\xff"
    with open(log, "w", encoding="utf-8") as file:  # noqa: PTH123 - a name in bytes
        file.write(torque_line(1, NOW - 900) + torque_line(2, NOW - 800).rstrip("\n") + end)
    cluster.source["path"] = "accounting/*"
    for _ in range(2):
        cluster.run()
        assert _damage(cluster) == []
    os.unlink(log)  # noqa: PTH108 - a name in bytes
    cluster.log(torque_line(3, NOW - 700))
    for _ in range(2):
        with cluster.publisher() as publisher:
            publisher.collect()
            assert publisher.status().sources["ce1"].jobs >= 2
        assert _damage(cluster) == []


def _damage(cluster: TorqueCluster) -> list[str]:
    with cluster.publisher() as publisher:
        return [finding.message for finding in publisher.maintenance.check() if finding.level == "red"]


@pytest.mark.parametrize("number", [IN_A_LINE, IN_A_LINE[:2_000]], ids=["long", "medium"])
def test_a_strange_id_in_a_grid_log_finds_its_run(tmp_path: Path, number: str) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.table["sources"]["ce1"]["grid_log"] = {"path": "blah.log"}
    (tmp_path / "blah.log").touch()
    site.now = NOVEMBER + 10_000
    site.sources["ce1"].add(
        *(make_job(place, user_dn=None, vo=None, local_id=name) for place, name in ((1, number), (2, "2")))
    )
    site.collect()
    site.publish()
    assert site.counted("sgas") == {State.HELD: 2}
    blah(tmp_path / "blah.log", number, "2")
    site.collect()
    site.publish()
    assert site.counted("sgas") == {State.ACCEPTED: 2}


_IDS: list[dict[str, Any]] = [
    {"record_id": incompressible()},
    {"record_id": "ur-with\0nul"},
    {"local_id": incompressible()},
    {"local_id": "1\0"},
    {"global_id": incompressible()},
    {"global_id": "1\0"},
]


@pytest.fixture
def other_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database for a spooling context, of the kind that the stores of sites are of, by its URL."""
    if not store_url_of(tmp_path).startswith("postgresql"):
        yield f"sqlite:///{tmp_path}/spool.db"
        return
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    server.run("CREATE DATABASE spooled")
    yield server.url("spooled")
    server.run("DROP DATABASE spooled WITH (FORCE)")


@pytest.mark.parametrize("facts", _IDS, ids=["record", "record-nul", "local", "local-nul", "global", "global-nul"])
def test_a_strange_id_stops_nothing_and_its_run_is_delivered_once(
    tmp_path: Path, other_database: str, facts: dict[str, Any]
) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas"), SummaryReceiver("sums")])
    site.table["spool"] = {"copy": {"format": "database", "url": other_database}}
    strange = msgspec.structs.replace(make_job(2), **facts)
    site.sources["ce1"].add(make_job(1), strange, make_job(3))
    site.collect()
    site.publish()
    site.sources["ce1"].add(strange)
    assert site.collect()["ce1"].unchanged == 1
    site.publish()
    assert site.counted("sgas") == {State.ACCEPTED: 3}
    assert len(site.receivers["sgas"].held) == 3
    assert site.counted("sums") == {State.ACCEPTED: 3}
    name = str(next(iter(facts.values())))
    assert len(site.publisher.job(name)) == 1
    assert site.rows("SELECT kind FROM spool_changes") == [("generation",)], "all is written to the context"
    with site.publisher.store.write() as connection:  # of a server: the next test has it
        spooler.remove(connection)
    site.reopen()


LONG: Any = incompressible()
FQANS = tuple(f"/{incompressible(seed=seed)}/Role={incompressible(seed=seed)}" for seed in range(2))
_FACTS: dict[str, Any] = {
    **dict.fromkeys(
        ["name", "array_id", "user_dn", "token_subject", "token_issuer", "local_user", "local_group", "vo", "vo_issuer",
         "project", "account", "department", "cluster", "queue", "parallel_environment", "endpoint_url",
         "endpoint_type", "client_host", "lrms", "middleware", "middleware_version", "service_class",
         "system_software"], LONG,
    ),
    "fqans": FQANS,
    "hosts": (Host(LONG),),
    "runtime_environments": (LONG,),
    "benchmarks": (Benchmark(LONG, 1.0),),
    "transfers": (Transfer("download", LONG),),
    "extras": {LONG: LONG},
}  # fmt: skip


LETTERS = {"ascii": _LETTERS, "nul": "\0", "quotes": '\\"', "wide": "\u4e2d\u6587\u5b57\u7b26"}


@pytest.mark.parametrize("letters", LETTERS)
def test_long_facts_stop_nothing(tmp_path: Path, letters: str) -> None:
    site = Site(
        tmp_path, [ListSource("ce1")], [RecordReceiver("sgas"), RecordReceiver("apel", "ams"), SummaryReceiver("sums")]
    )
    site.sources["ce1"].add(make_job(1))
    for number, (field, value) in enumerate(_FACTS.items(), 2):
        given = incompressible(seed=number, letters=LETTERS[letters]) if isinstance(value, str) else value
        site.sources["ce1"].add(make_job(number, **{field: given}), make_job(100 + number, **{field: given}))
    site.sources["ce1"].add(make_job(99))
    count = 2 + 2 * len(_FACTS)
    for _ in range(2):
        site.collect()
        site.publish()
    for target in ("sgas", "apel", "sums"):
        counted = site.counted(target)
        assert set(counted) <= {State.ACCEPTED, State.HELD}, target
        assert sum(counted.values()) == count
        assert counted[State.ACCEPTED] > count // 2


def test_keys_of_summaries_are_short_enough_for_an_index(tmp_path: Path) -> None:
    """The longest that the rules of summaries let through, in all parts of a key at once, hard to compress."""

    def part(seed: int) -> str:
        return "/" + incompressible(250, seed, letters='"\\' + _LETTERS)

    facts: dict[str, Any] = {
        "user_dn": part(1), "vo": part(2), "fqans": (f"{part(3)}/Role={part(4)[:200]}",),
        "queue": part(6),
    }  # fmt: skip
    site = Site(tmp_path, [ListSource("ce1")], [SummaryReceiver("sums")])
    site.table["site"]["name"] = part(7)
    site.table["sources"]["ce1"]["submit_host"] = part(5)
    site.sources["ce1"].add(make_job(1), make_job(2, **facts))
    site.collect()
    site.publish()
    assert site.counted("sums") == {State.ACCEPTED: 2}
    assert max(len(key) for (key,) in site.rows("SELECT key FROM groups")) > 1_000


def test_keys_of_texts_differ_where_the_texts_do() -> None:
    text = incompressible(5_000, letters="\u4e2da")
    key = index_key(text)
    assert len(key.encode()) <= MOST_KEY_BYTES
    assert index_key(key) == key
    assert index_key(text[:-1]) != key
    assert index_key("a" * MOST_KEY_BYTES) == "a" * MOST_KEY_BYTES
    assert record_key("a\0b") == "a%00b"
