"""Contexts follow the store: what was committed is there, whatever happens to the process or to a context."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.calendar import Month
from formats.job import Host
from publisher.config.schema import SpoolContext
from publisher.errors import ConfigError, StoreFullError
from publisher.events import ContextFilled, TargetPaused, ignore
from publisher.spool import kinds, spooler
from publisher.spool.base import Kind, Object
from publisher.spool.context import SpoolingContext, make_context
from publisher.spool.kinds import kind_named
from publisher.spool.spooler import Spooler
from publisher.store.database import open_store
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import OCTOBER, Killed, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store
KINDS = ("jobs", "deliveries", "messages")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site with a context of each format."""
    site = Site(tmp_path, [ListSource("ce1", page=4)], [RecordReceiver("sgas")])
    site.table["targets"]["sgas"]["batch_records"] = 3
    site.table["spool"] = {
        form: {"format": form, "path": f"spool-{form}"} for form in ("classic", "delimited", "json-lines", "xml")
    }
    site.table["spool"]["database"] = {"format": "database", "url": f"sqlite:///{tmp_path}/other.db"}
    site.sources["ce1"].add(*make_jobs(10))
    yield site
    site.reopen()
    store = open_store(site.config.store.url)  # of a server: the next test has it
    with store.write() as connection:
        spooler.remove(connection)
    store.close()


def contents(site: Site, form: str, names: tuple[str, ...] = KINDS) -> dict[str, list[Object]]:
    """What a context holds by kind, as another process reads it."""
    table = dict(site.table["spool"][form])
    if "path" in table:
        table["path"] = site.folder / table["path"]
    context = make_context(SpoolContext(**table))
    context.startup()
    try:
        return {kind: sorted(context.read_list(kind_named(kind)), key=lambda item: item.key) for kind in names}
    finally:
        context.shutdown()


def stored(site: Site) -> dict[str, list[Object]]:
    """What the store holds."""
    store = open_store(site.config.store.url)
    try:
        with store.read() as connection:
            return {kind: sorted(kinds.all_of(connection, kind), key=lambda item: item.key) for kind in KINDS}
    finally:
        store.close()


def assert_all_the_same(site: Site) -> None:
    """Every context holds what the store does, and nothing is left to be written."""
    there = stored(site)
    for form in site.table["spool"]:
        found = contents(site, form)
        assert found == there, form
    assert site.rows("SELECT kind FROM spool_changes") == [("generation",)]


def test_contexts_have_what_was_committed(site: Site) -> None:
    site.collect()
    assert_all_the_same(site)
    site.receivers["sgas"].poison = {make_job(3).record_id}
    site.publish()
    assert len(site.in_state("sgas", State.REJECTED)) == 1
    assert_all_the_same(site)
    site.publisher.waive(State.REJECTED, "sgas", [make_job(3).record_id], "a test")
    site.sources["ce1"].add(make_job(1, wall_s=7), make_job(11))
    site.collect()
    assert_all_the_same(site)
    assert {len(each) for each in stored(site).values()} >= {11}


FULL = make_job(20, hosts=(Host("n1", 2), Host("n2")), fqans=("/atlas", "/atlas/no"), extras={"memory": "2,5", "q": 1})
CHOSEN = ("local_id", "local_user", "wall_ms", "fqans", "extras", "hosts")


def chosen_contents(site: Site, form: str, names: tuple[str, ...]) -> list[Object]:
    """The jobs that a context holds, as one with these attributes reads them."""
    table = {**site.table["spool"][form], "attributes": {"jobs": names}}
    if "path" in table:
        table["path"] = site.folder / table["path"]
    context = make_context(SpoolContext(**table))
    context.startup()
    try:
        return sorted(context.read_list(kind_named("jobs").only(names)), key=lambda item: item.key)
    finally:
        context.shutdown()


def test_chosen_attributes(site: Site) -> None:
    """A context may have only some attributes of a kind, in any format; other kinds stay complete."""
    for each in site.table["spool"].values():
        each["attributes"] = {"jobs": list(CHOSEN)}
    site.sources["ce1"].add(FULL)
    site.collect()
    site.sources["ce1"].add(make_job(1, wall_s=7), make_job(11))
    site.collect()
    there = stored(site)
    expected = [kind_named("jobs").only(CHOSEN).of(item) for item in there["jobs"]]
    assert any(set(item.values) < {*CHOSEN} for item in expected)
    assert all("queue" in item.values for item in there["jobs"])
    for form in site.table["spool"]:
        assert chosen_contents(site, form, CHOSEN) == expected, form
        assert contents(site, form, ("deliveries",))["deliveries"] == there["deliveries"], form
    spooled = [file.read_text() for file in site.folder.glob("spool-*/**/*") if file.is_file()]
    assert not any(there["jobs"][0].values["queue"] in text for text in spooled)
    assert site.rows("SELECT kind FROM spool_changes") == [("generation",)]


def test_other_attributes_fill_a_context_anew(site: Site) -> None:
    """More, fewer, or other attributes: nothing is left of those that are no longer written, and nothing is missing."""
    site.sources["ce1"].add(FULL)
    site.collect()
    for names in (("local_id", "queue"), CHOSEN, ("hosts", "end"), ("local_id",)):
        for each in site.table["spool"].values():
            each["attributes"] = {"jobs": list(names)}
        site.reopen()
        _ = site.publisher.store
        expected = [kind_named("jobs").only(names).of(item) for item in stored(site)["jobs"]]
        for form in site.table["spool"]:
            assert chosen_contents(site, form, names) == expected, (form, names)
        for form in ("classic", "delimited"):
            left = [file for file in (site.folder / f"spool-{form}").glob("**/*hosts*") if file.is_file()]
            assert bool(left) == ("hosts" in names), (form, names)
    for each in site.table["spool"].values():
        del each["attributes"]
    site.reopen()
    _ = site.publisher.store
    assert_all_the_same(site)


def test_an_attribute_that_is_not_one(site: Site) -> None:
    site.table["spool"] = {
        "texts": {"format": "classic", "path": "texts", "kinds": ["jobs"], "attributes": {"jobs": ["local_usr"]}}
    }
    with pytest.raises(
        ConfigError, match=r"jobs have no attribute 'local_usr'; did you mean 'local_user'\?"
    ) as reported:
        site.collect()
    assert "spool.texts.attributes.jobs" in str(reported.value)
    for wrong in ({"deliveries": ["state"]}, {"jobs": []}):
        with pytest.raises(ValueError, match=r"is not among the kinds of this context|must name"):
            SpoolContext(format="classic", path=Path("texts"), kinds=("jobs",), attributes=wrong)


def test_purged_and_forgotten_leave_the_contexts(site: Site) -> None:
    site.sources["ce1"].add(make_job(50, end=OCTOBER))
    site.collect()
    site.publish()
    assert site.publisher.maintenance.purge(Month(2026, 11)).runs == 1
    site.publisher.maintenance.forget("/DC=org/CN=Ada")
    assert_all_the_same(site)
    site.publisher.spool()
    assert_all_the_same(site)
    left = [file for file in site.folder.glob("spool-*/**/*") if file.is_file() and b"Ada" in file.read_bytes()]
    assert left == []


def test_a_context_that_is_new_is_filled(site: Site) -> None:
    contexts = site.table.pop("spool")
    site.collect()
    site.publish()
    site.table["spool"] = contexts
    site.reopen()
    site.publisher.status()
    assert_all_the_same(site)
    site.table["spool"]["xml"]["kinds"] = ["messages"]
    site.reopen()
    site.publisher.status()
    assert [item.kind for item in contents(site, "xml")["messages"]] == ["messages"] * 4


def test_a_problem_with_a_context_stops_nothing_and_is_fixed(site: Site) -> None:
    (site.folder / "spool-classic").write_text("a file where the folder should be")
    site.collect()
    shutil.rmtree(site.folder / "spool-xml")  # another one while it is written to
    (site.folder / "spool-xml").write_text("and a file in its place")
    site.publish()
    reported = [event for event in site.events if isinstance(event, TargetPaused)]
    assert [event.target for event in reported] == ["spool classic", "spool xml"]
    assert len(site.in_state("sgas", State.ACCEPTED)) == 10
    assert [each.name for each in site.publisher.spool() if each.problem] == ["classic", "xml"]
    (site.folder / "spool-classic").unlink()
    assert [each.name for each in site.publisher.spool() if each.problem] == ["xml"]
    (site.folder / "spool-xml").unlink()
    site.reopen()
    site.publisher.status()
    assert_all_the_same(site)


PLACES = [("json-lines", "jobs.jsonl"), ("delimited", "jobs.hosts.*"), ("classic", "deliveries")]
OBJECTS = [("xml", "jobs/*/*.xml"), ("classic", "jobs/*/*")]


def remove(site: Site, form: str, pattern: str) -> None:
    place = min((site.folder / f"spool-{form}").glob(pattern))
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()


def spooling(site: Site) -> list[tuple[str, str]]:
    return [(each.level, each.message) for each in site.publisher.maintenance.check() if each.subject == "spooling"]


@pytest.mark.parametrize(("form", "pattern"), OBJECTS)
def test_objects_that_were_removed_are_noticed_and_written_again(site: Site, form: str, pattern: str) -> None:
    site.collect()
    site.publish()
    remove(site, form, pattern)
    site.sources["ce1"].add(make_job(11))
    site.collect()
    assert spooling(site) == [("red", f"the context {form} has 10 of 11 jobs: something was removed or added")]
    assert [each.name for each in site.publisher.spool() if each.was_incomplete] == [form]
    assert_all_the_same(site)
    assert spooling(site) == [("green", "every context has what the store has")]


@pytest.mark.parametrize(
    ("form", "pattern", "change"),
    [
        ("xml", "jobs/*/*.xml", lambda content: content.replace(b"Ada", b"Eve")),
        ("xml", "jobs/*/*.xml", lambda _content: b""),
        ("classic", "jobs/**/*", lambda content: content.replace(b"Ada", b"Eve")),
        ("classic", "jobs/**/*", lambda _content: b""),
        ("json-lines", "jobs.jsonl", lambda content: content.replace(b"Ada", b"Eve", 1)),
        ("json-lines", "jobs.jsonl", lambda content: content[: len(content) // 2]),
        ("delimited", "jobs.hosts.*", lambda content: content[: len(content) // 2]),
        ("delimited", "jobs.hosts.*", lambda content: content.replace(b"node", b"edon", 1)),
    ],
)
def test_objects_that_were_altered_are_noticed_and_written_again(
    site: Site, form: str, pattern: str, change: Callable[[bytes], bytes]
) -> None:
    site.sources["ce1"].add(make_job(11, hosts=(Host("node1", 2), Host("node2", 2))))
    site.collect()
    site.publish()
    site.reopen()
    file = min(path for path in (site.folder / f"spool-{form}").glob(pattern) if path.is_file())
    content = file.read_bytes()
    assert change(content) != content
    file.write_bytes(change(content))
    ((level, message),) = spooling(site)
    assert (level, form in message) == ("red", True)
    assert [each.name for each in site.publisher.spool() if each.was_incomplete] == [form]
    assert_all_the_same(site)
    assert spooling(site) == [("green", "every context has what the store has")]


@pytest.mark.parametrize(("form", "pattern"), PLACES)
@pytest.mark.parametrize("in_one_process", [True, False])
def test_without_the_file_or_folder_of_a_kind_the_next_command_fills_it(
    site: Site, form: str, pattern: str, *, in_one_process: bool
) -> None:
    site.collect()
    if not in_one_process:
        site.reopen()
    remove(site, form, pattern)
    if in_one_process:
        ((level, message),) = spooling(site)
        assert (level, f"the context {form} has 0 of 10" in message) == ("red", True)
    site.sources["ce1"].add(make_job(11))
    site.events.clear()
    site.collect()
    assert [event for event in site.events if isinstance(event, ContextFilled)] == [ContextFilled(form, True)]
    assert [each.name for each in site.publisher.spool() if each.was_incomplete] == [form]
    assert_all_the_same(site)


def test_rows_that_were_removed_from_a_database_are_noticed(site: Site) -> None:
    site.collect()
    site.reopen()
    with sqlite3.connect(site.folder / "other.db") as other:
        other.execute("DELETE FROM spool_deliveries WHERE key IN (SELECT key FROM spool_deliveries LIMIT 3)")
    other.close()
    assert spooling(site) == [("red", "the context database has 7 of 10 deliveries: something was removed or added")]
    assert not any(each.problem for each in site.publisher.spool())
    assert_all_the_same(site)


def test_a_transaction_that_is_rolled_back_leaves_no_trace(site: Site) -> None:
    site.collect()
    site.publish()
    before = stored(site)
    site.sources["ce1"].add(make_job(90))
    with site.full_at("UPDATE", "sources"), pytest.raises(StoreFullError):
        site.collect()
    assert stored(site) == before
    assert_all_the_same(site)


class Dying:
    """A context that dies after this number of objects of all contexts, of which it has committed the last."""

    left = 0

    def __init__(self, context: SpoolingContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def write_object(self, kind: Kind, item: Object) -> None:
        """Write, or die."""
        if Dying.left == 0:
            self._context.commit()
            raise Killed
        Dying.left -= 1
        self._context.write_object(kind, item)


def collect_and_publish(site: Site) -> None:
    site.collect()
    site.publish()


@pytest.mark.parametrize("step", range(0, 102, 17))
def test_killed_while_it_writes_the_next_process_brings_contexts_up_to_date(site: Site, step: int) -> None:
    settings, table = site.config.spool, site.table.pop("spool")
    site.publisher.status()
    Dying.left = step
    Spooler(
        site.publisher.store, settings, ignore, lambda *_told: None, lambda each: Dying(make_context(each))
    ).startup()
    with pytest.raises(Killed):
        collect_and_publish(site)
    site.table["spool"] = table
    site.reopen()
    site.collect()
    site.publish()
    assert len(site.in_state("sgas", State.ACCEPTED)) == 10
    assert_all_the_same(site)


def test_check_reports_contexts_and_repair_stops_those_that_are_gone(site: Site) -> None:
    def found() -> list[tuple[str, str]]:
        return [(each.level, each.message) for each in site.publisher.maintenance.check() if each.subject == "spooling"]

    site.collect()
    assert found() == [("green", "every context has what the store has")]
    site.table["spool"] = {}
    site.reopen()
    site.publish()
    ((level, message),) = found()
    assert level == "yellow"
    assert "no context is configured any more" in message
    assert site.publisher.maintenance.repair() == []
    assert found() == []
    assert site.rows("SELECT count(*) FROM spool_changes") == [(0,)]


def test_without_contexts_there_are_no_triggers(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.sources["ce1"].add(make_job(1))
    site.collect()
    site.publish()
    assert site.rows("SELECT count(*) FROM spool_changes") == [(0,)]


def test_a_mark_that_is_added_to_a_run_is_not_a_change_of_the_run(site: Site) -> None:
    """It means that the source still has the same run."""
    site.collect()
    site.publish()
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("UPDATE runs SET mark = digest")
        assert spooler.pending(connection, 10) == []
        connection.exec_driver_sql("UPDATE runs SET stored_at = stored_at + 1 WHERE id = 1")
        assert [found[0] for found in spooler.pending(connection, 10)] == ["jobs"]


def test_a_copied_store_starts_contexts_of_its_own(site: Site, tmp_path: Path) -> None:
    from publisher.maintenance import copy_store

    site.collect()
    site.publish()
    site.reopen()
    copy_store(site.config.store.url, f"sqlite:///{tmp_path}/copy/store.db", 1, lambda _table: None)
    connection = sqlite3.connect(tmp_path / "copy" / "store.db")
    assert connection.execute("SELECT count(*) FROM spool_changes").fetchone() == (0,)
    connection.close()
