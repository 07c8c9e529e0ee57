"""What the pages show is not only spelled right: configurations are read, and commands are run on a site."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.config.file import parse
from publisher.page.auth import People
from tests.conftest import ROOT
from tests.docs.test_commands import command_lines
from tests.docs.test_pages import FENCE, PAGES, page_id
from tests.generators.arc_database import load
from tests.publisher.cli.program import Inside

INDENTED: Final = re.compile(r"(?:^    .*\n)+", re.MULTILINE)


def configurations(page: Path) -> Iterator[str]:
    """The settings that a page shows."""
    text = page.read_text(encoding="utf-8")
    yield from (block for language, block in FENCE.findall(text) if language == "toml")
    blocks = (re.sub("^    ", "", block, flags=re.MULTILINE) for block in INDENTED.findall(FENCE.sub("", text)))
    yield from (block for block in blocks if block.startswith("["))


SHOWN: Final = [
    pytest.param(page, text, id=f"{page_id(page)}-{number}")
    for page in PAGES
    for number, text in enumerate(configurations(page), 1)
]


def completed(page: Path, table: dict[str, Any]) -> dict[str, Any]:
    """A part of a file, completed by what it lacks: the site; the type of a source; the table to which single keys
    belong."""
    if page.parent.name in {"sources", "targets"} and not any(isinstance(value, dict) for value in table.values()):
        table = {page.parent.name: {"it": {"path": "/var/log/it", "type": page.stem, **table}}}
    for source in table.get("sources", {}).values():
        source.setdefault("type", "torque")
        source.setdefault("path", "/var/log/it")
    return {"site": {"name": "EXAMPLE-SITE"}, **table}


@pytest.mark.parametrize(("page", "text"), SHOWN)
def test_a_configuration_that_is_shown_is_read(page: Path, text: str, tmp_path: Path) -> None:
    table = tomllib.loads(text)
    if {"groups", "users"} & set(table):
        people = tmp_path / "people.toml"
        people.write_text(text.replace('"..."', '"' + "0" * 64 + '"'), encoding="utf-8")
        people.chmod(0o600)
        assert People(people)
    else:
        assert parse(completed(page, table), tmp_path / "publisher.toml").site.name


WALKED: Final = ("move-from-", "life-of-a-site.md", "commands.md")
"""Pages whose commands another test runs from the first to the last, and the reference, which has usages."""

LEFT_OUT: Final = {
    "init": "asks",
    "republish": "asks before it sends again",
    "store forget": "asks before it forgets",
    "store purge": "is only named: it asks what to purge",
    "serve": "stays",
    "run --every": "stays",
    "import": "reads another publisher's configuration",
    "shadow": "is for a target that is a shadow",
    "reconcile": "asks a service",
    "inspect": "is given the message of a rule",
    "collect --unreadable --settle --piece": "is for pieces that are listed",
    "records show": "is for a record that a service refused",
    "records retry RECORD": "is for a record that a service keeps in its first version",
    "records waive": "is for a record that a service keeps in its first version",
    "store copy": "goes to a server",
    "store spool": "is for a site with spooling contexts",
    "report totals --archive /shared": "goes to a cluster",
    "month close": "asks, or closes a month that this site has no jobs of",
    "month cancel": "is for a closed month",
}
"""What is not run here, because of what it needs; each has tests of its own."""

STANDS_FOR: Final = {
    "FORMAT": "ogf-ur",
    "NAME": "files",
    "TARGET": "files",
    "neic": "files",
    "apel": "summaries",
    "TIME": "2026-11-01",
    "FILE": "backup.db",
    "DIR": "exported",
    "4711": "36",
}


def is_run(line: str) -> bool:
    """Whether it is run here."""
    words = line.removeprefix("usage-publisher ").removeprefix("--config rehearsal.toml ")
    return "[" not in line and not any(words.startswith(start) for start in LEFT_OUT)


def lines(pages: Iterable[Path]) -> list[str]:
    """The command lines that pages show, each once."""
    return sorted({line for page in pages for line in command_lines(page.read_text(encoding="utf-8"))})


LINES: Final = lines(page for page in PAGES if not page.name.startswith(WALKED))


@pytest.fixture(scope="session")
def shown_site(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Inside:
    """A site that published once; with prices and an archive."""
    site = Inside(tmp_path_factory.mktemp("shown"))
    load(fixtures / "arc" / "accounting.sql", site.folder / "accounting.db")
    site("run")
    site("archive", "usage-archive").ok()
    (prices,) = configurations(ROOT / "docs" / "reference" / "reports" / "charges.md")
    site.configure(site.config.read_text(encoding="utf-8") + prices)
    return site


@pytest.mark.parametrize("line", [line for line in LINES if is_run(line)])
def test_a_command_that_is_shown_is_run(line: str, shown_site: Inside, tmp_path: Path) -> None:
    site = shown_site.copy(tmp_path / "site")
    ((known,),) = site.rows("SELECT record_id FROM runs ORDER BY id LIMIT 1")
    standing = {**STANDS_FOR, "ID": known}
    words = [standing.get(word, word) for word in shlex.split(line)[1:] if word not in {"--config", "rehearsal.toml"}]
    words = [re.sub(r"^/(srv|tmp|backup)/", f"{site.folder}/", word) for word in words]
    done = site(*words)
    assert done.code in {0, 3}, (words, done.code, done.err)


def test_nothing_is_left_out_for_nothing() -> None:
    """Every reason applies to a line that is shown somewhere."""
    shown = [line.removeprefix("usage-publisher ") for line in lines(PAGES)]
    assert [start for start in LEFT_OUT if not any(line.startswith(start) for line in shown)] == []
