"""URLs of stores: what is taken, and what is refused with the way to do it; no message has a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.config import file as config_file
from publisher.config.store_url import is_url, store_url
from publisher.errors import ConfigError, StoreError, UsageError
from publisher.simulator.pki import Pki
from publisher.store.database import open_store
from publisher.store.dialect import reach
from tests.publisher.cli.program import BASE, SOURCE, Program
from tests.publisher.cli.test_init import answers
from tests.publisher.store.server import PASSWORD, PostgresqlServer

pytestmark = pytest.mark.inside

HERE = Path("/etc/usage-publisher")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("sqlite:////var/x.db", "sqlite:////var/x.db"),
        ("sqlite:///x.db", "sqlite:////etc/usage-publisher/x.db"),
        ("postgresql://u@db.example.org/x", None),
        ("postgresql://u@db.example.org:5432/x?sslmode=verify-full", None),
        ("postgresql+psycopg://u@[::1]:5432/x", None),
        ("postgresql:///?service=usage", None),
        ("postgresql://u@/x?host=/run/postgresql&passfile=/etc/pgpass", None),
    ],
)
def test_what_is_taken(given: str, taken: str | None) -> None:
    assert store_url(given, HERE) == (taken or given)
    assert is_url(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("postgres://u@h/x", "must begin with postgresql://"),
        ("postgresql:u@h/x", "must begin with postgresql://"),
        ("postgresql+psycopg2://u@h/x", "is not the URL of a store"),
        ("mysql://u@h/x", "is not the URL of a store"),
        ("https://h/x", "is not the URL of a store"),
        ("sqlite:x.db", "must begin with sqlite:///"),
        ("sqlite://x.db", "must begin with sqlite:///"),
        ("sqlite:///", "must begin with sqlite:///"),
        ("/var/lib/x.db", "is not the URL of a store"),
        ("", "is not the URL of a store"),
        ("postgresql://u@h:abc/x", "the port"),
        ("postgresql://u@h:70000/x", "the port"),
        ("postgresql://u@h:1,i:2/x", "the port"),
        ("postgresql://u@[::1/x", "bracket"),
        ("postgresql://u:5wordfish@h/x", "not contain a password"),
        ("postgresql://u:@h/x", "not contain a password"),
        ("postgresql://u@h/x?password=5wordfish", "not contain a password"),
        ("postgresql://u@h/x?sslmode=require&pass%77ord=5wordfish", "not contain a password"),
        ("postgresql://u@h/x?sslpassword=5wordfish", "not contain a password"),
        ("postgresql://u:5word/fish@h/x", "the port"),
    ],
)
def test_what_is_refused(tmp_path: Path, given: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        store_url(given, HERE)
    assert caught.value.hint
    file = tmp_path / "publisher.toml"
    with pytest.raises(ConfigError, match=r"store\.url") as reported:
        config_file.parse({"site": {"name": "S"}, "store": {"url": given}}, file)
    assert reported.value.exit_code == 2
    for error in (caught.value, reported.value):
        assert "5word" not in str(error)


def test_the_place_of_a_context_is_relative_to_the_configuration(tmp_path: Path) -> None:
    table = {"site": {"name": "S"}, "spool": {"copy": {"format": "database", "url": "sqlite:///copy.db"}}}
    found = config_file.parse(table, tmp_path / "publisher.toml")
    assert found.spool["copy"].url == f"sqlite:///{tmp_path}/copy.db"
    table["spool"]["copy"]["url"] = "postgresql://u:5wordfish@h/x"
    with pytest.raises(ConfigError, match=r"spool\.copy\.url") as caught:
        config_file.parse(table, tmp_path / "publisher.toml")
    assert "5wordfish" not in str(caught.value)


def test_a_host_with_a_port_that_is_not_a_number_is_an_error_of_the_store() -> None:
    for url in ("postgresql://u@/x?host=h:abc", "postgresql://u@h:abc/x"):
        with pytest.raises(StoreError):
            open_store(url)


@pytest.mark.parametrize("section", ["sources", "targets", "spool"])
@pytest.mark.parametrize("length", [0, 101, 400])
def test_names_have_a_length(tmp_path: Path, section: str, length: int) -> None:
    settings = {
        "sources": {"type": "arc", "path": "x"}, "targets": {"type": "directory", "path": "x"},
        "spool": {"format": "xml", "path": "x"},
    }  # fmt: skip
    table = {"site": {"name": "S"}, section: {"n" * length: settings[section]}}
    with pytest.raises(ConfigError, match=f"1 to 100 characters, not {length}") as caught:
        config_file.parse(table, tmp_path / "publisher.toml")
    assert len(str(caught.value)) < 400
    table[section] = {"\u4e2d" * 100: settings[section]}
    config_file.parse(table, tmp_path / "publisher.toml")


def test_the_longest_name_can_be_published_to(published: Program) -> None:
    name = "\u4e2d" * 100
    text = published.config.read_text("utf-8").replace("[targets.files]", f'[targets."{name}"]')
    published.configure(text)
    assert published("publish", "--json").ok().object["targets"][name]["accepted"] == 37


@pytest.mark.parametrize(
    "line",
    ["x = " + "[" * 100_000, "x = " + "{x=" * 100_000, "x" + ".x" * 3_000 + " = 1", "[" + "x." * 3_000 + "x]"],
    ids=["lists", "tables", "key", "heading"],
)
def test_a_file_that_is_nested_deeply_is_refused_with_a_sentence(fresh: Program, line: str) -> None:
    fresh.configure(f"{line}\n{BASE}{SOURCE}")
    done = fresh("status")
    assert done.code == 2
    assert "Traceback" not in done.err
    assert str(fresh.config) in done.err
    assert len(done.err) < 2_000


def test_init_takes_a_url_as_a_url(fresh: Program, pki: Pki, postgresql: PostgresqlServer) -> None:
    url = postgresql.url(postgresql.new_database())
    fresh("--config", "new.toml", "init", "--json", *answers(fresh, pki, store=url)).ok()
    written, line = fresh.folder / "new.toml", f'url = "{url}"'
    text = written.read_text("utf-8")
    assert line in text
    written.write_text(text.replace(line, f'{line}\nsent_mark = "mark"'), "utf-8")
    assert fresh("--config", "new.toml", "run", "--json").object["sources"]["arc"]["new"] == 39
    assert not [file for file in fresh.folder.rglob("*") if "postgresql" in file.name]
    store = open_store(url)
    with store.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM runs WHERE finished = 1").scalar_one() == 39
    store.close()


def test_init_reports_a_database_that_cannot_be_reached(fresh: Program, pki: Pki) -> None:
    url = f"postgresql://u@/x?host={fresh.folder}"
    found = fresh("--config", "new.toml", "init", "--json", *answers(fresh, pki, store=url)).object
    assert any("cannot be reached" in problem for problem in found["problems"])


@pytest.mark.parametrize("store", ["postgres://u@h/x", "mysql://h/x", "sqlite:x.db", "postgresql://u:5wordfish@h/x"])
def test_init_refuses_other_urls_and_passwords(fresh: Program, pki: Pki, store: str) -> None:
    done = fresh("--config", "new.toml", "init", *answers(fresh, pki, store=store))
    assert done.code == 2
    assert "5wordfish" not in done.err
    assert not (fresh.folder / "new.toml").exists()


def test_init_takes_a_url_for_no_folder(fresh: Program, pki: Pki) -> None:
    done = fresh("--config", "new.toml", "init", *answers(fresh, pki, url="https://sgas.example.org"))
    assert done.code == 2
    assert "is a URL" in done.err


def test_commands_that_take_a_file_or_a_url_refuse_the_other(published: Program) -> None:
    assert published("store", "backup", "postgresql://u@h/x").code == 2
    done = published("store", "copy", "sqlite:///store.db", "postgresql://u:5wordfish@h/x")
    assert done.code == 2
    assert "PGPASSFILE" in done.err
    assert "5wordfish" not in done.err


def test_a_password_file_and_a_service_file_do_instead(
    tmp_path: Path, postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgresql.new_database()
    secret, service = tmp_path / "pgpass", tmp_path / "service.conf"
    secret.write_text(f"*:*:*:guarded:{PASSWORD}\n")
    secret.chmod(0o600)
    service.write_text(f"[usage]\nhost={postgresql.sockets}\ndbname={database}\nuser=guarded\npassword={PASSWORD}\n")
    with pytest.raises(StoreError, match="refuses the login"):
        reach(postgresql.url(database, "guarded"), 1.0)
    monkeypatch.setenv("PGPASSFILE", str(secret))
    reach(store_url(postgresql.url(database, "guarded"), tmp_path), 1.0)
    monkeypatch.delenv("PGPASSFILE")
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    reach(store_url("postgresql:///?service=usage", tmp_path), 1.0)
