"""import, as people use it: it shows first, writes only the given file, and this file can be used."""

from __future__ import annotations

import getpass
import re
import sqlite3
import tomllib
from pathlib import Path

import pytest

from publisher.text import text_of
from tests.publisher.cli.program import Program

pytestmark = pytest.mark.inside


@pytest.fixture
def state(fixtures: Path, fresh: Program) -> Path:
    path = fresh.folder / "publishing.db"
    connection = sqlite3.connect(path)
    connection.executescript((fixtures / "moving" / "arc" / "publishing.sql").read_text())
    connection.close()
    return path


def test_it_shows_and_changes_nothing(fresh: Program, fixtures: Path, state: Path) -> None:
    before = {path: path.read_bytes() for path in fresh.folder.rglob("*") if path.is_file()}
    done = fresh("import", "arc", fixtures / "moving" / "arc" / "arc.conf", "--publishing-db", state).ok()
    assert tomllib.loads(done.out)["targets"]["neic"]["delivered_until"] == "2026-11-10T00:00:00Z"
    assert "choose: [arex/jura/sgas:national]" in done.out
    assert "to make first" in done.err
    assert {path: path.read_bytes() for path in fresh.folder.rglob("*") if path.is_file()} == before


def untimed(configuration: str) -> str:
    """The text without the time of the import."""
    return re.sub(r" at 20[0-9TZ:-]+", "", configuration)


def test_it_writes_where_it_is_asked_to(fresh: Program, fixtures: Path, state: Path) -> None:
    arguments = ("import", "arc", fixtures / "moving" / "arc" / "arc.conf", "--publishing-db", state, "--output")
    shown = fresh(*arguments[:-1]).ok().out
    new = fresh.folder / "etc" / "new.toml"
    done = fresh(*arguments, new).ok()
    assert done.out == ""
    assert untimed(new.read_text()) == untimed(shown)
    own = new.read_text().replace("/var/lib/usage-publisher/store.db", str(fresh.folder / "store.db"))
    new.write_text(own)  # no test looks at the store of this host
    assert fresh("--config", new, "status").ok()
    new.write_text("mine")
    again = fresh(*arguments, new)
    assert again.code == 2
    assert "already exists" in again.err
    assert new.read_text() == "mine"
    fresh(*arguments, new, "--force").ok()
    assert untimed(new.read_text()) == untimed(shown)


@pytest.mark.parametrize(
    "words",
    [
        ("arc", "arc/arc.conf", "--site", "A"),
        ("apel", "apel/client.cfg", "apel/parser.cfg", "apel/sender.cfg"),
        ("sgas-bart", "bart/bart.conf", "--delivered-until", "2026-11-10", "--site", "A"),
    ],
    ids=["arc", "apel", "sgas-bart"],
)
def test_json(fresh: Program, fixtures: Path, words: tuple[str, ...]) -> None:
    words = tuple(str(fixtures / "moving" / word) if "/" in word else word for word in words)
    found = fresh("import", *words, "--json").ok().object
    assert set(found) == {"configuration", "file", "remarks"}
    assert found["file"] is None
    assert tomllib.loads(found["configuration"])["targets"]
    assert {"kind", "where", "text"} == set(found["remarks"][0])


def test_what_is_not_a_file(fresh: Program) -> None:
    for words in (("arc", "/nosuch"), ("apel", "/nosuch"), ("sgas-bart", "/nosuch")):
        done = fresh("import", *words)
        assert done.code == 2
        assert "/nosuch cannot be read" in done.err


@pytest.fixture
def queued(fresh: Program) -> Path:
    """A message that SSM left; our target for APEL is a folder."""
    queue = fresh.folder / "outgoing" / "5ba24c88"
    queue.mkdir(parents=True)
    text = "APEL-sync-message: v0.1\nSite: EXAMPLE-SITE\nSubmitHost: ce9\nNumberOfJobs: 3\nMonth: 10\nYear: 2026\n%%\n"
    (queue / "5ba24c8f0f129d").write_text(text)
    return queue.parent


def test_a_queue_that_ssm_left(fresh: Program, queued: Path) -> None:
    shown = fresh("import", "ssm-queue", queued, "summaries", "--dry-run").ok()
    assert "apel-sync" in shown.out
    assert not (fresh.folder / "summaries").exists()
    asked = fresh("import", "ssm-queue", queued, "summaries")
    assert asked.code == 2
    assert "--yes" in asked.err
    done = fresh("import", "ssm-queue", queued, "summaries", "--yes").ok()
    assert "1 message with 1 record sent" in done.err
    sent = [path for path in (fresh.folder / "summaries").rglob("*") if path.is_file()]
    assert [path.read_text() for path in sent] == [
        (fresh.folder / "outgoing.taken-over" / "5ba24c88" / "5ba24c8f0f129d").read_text()
    ]
    assert "import ssm-queue" in fresh("store", "audit").ok().out
    assert fresh("import", "ssm-queue", queued, "summaries", "--yes", "--json").ok().object == {"messages": []}


@pytest.mark.parametrize(
    ("queue", "target", "said"),
    [
        ("nosuch", "summaries", "cannot be read"),
        ("outgoing", "nosuch", "nosuch"),
        ("summaries", "summaries", "is the folder of"),
    ],
)
def test_a_queue_that_cannot_be_taken(fresh: Program, queued: Path, queue: str, target: str, said: str) -> None:
    assert queued.exists()
    done = fresh("import", "ssm-queue", queue, target, "--yes")
    assert done.code == 2
    assert said in done.err


def test_what_was_taken_over_is_in_the_audit_with_the_files_and_who_did_it(
    fresh: Program, fixtures: Path, state: Path
) -> None:
    """Also for a target of which nothing is known."""
    written = fresh.folder / "imported.toml"
    arc_conf = fixtures / "moving" / "arc" / "arc.conf"
    fresh("import", "arc", arc_conf, "--publishing-db", state, "--output", written).ok()
    table = tomllib.loads(written.read_text())
    reported = {name: target["taken_over_from"] for name, target in table["targets"].items()}
    for text in reported.values():
        assert text.startswith(f"imported from {arc_conf} and {state} by {getpass.getuser()} at 20")
    table["store"]["url"] = f"sqlite:///{fresh.folder}/taken.db"
    for source in table["sources"].values():
        source["path"] = str(fresh.folder / "accounting.db")
    table.pop("credentials", None)
    written.write_text(text_of(table))
    done = fresh("--config", written, "collect")
    assert done.code == 0, done.err
    entries = fresh("--config", written, "store", "audit", "--json").ok().object["records"]
    by_target = {entry["subject"]: entry for entry in entries}
    assert by_target.keys() == table["targets"].keys()
    for name, target in table["targets"].items():
        known = "delivered_until" in target
        assert by_target[name]["action"] == ("delivered_until" if known else "import")
        assert by_target[name]["detail"].endswith(
            f"count{'' if known else 's'} as delivered by an earlier publisher; {reported[name]}"
        )
