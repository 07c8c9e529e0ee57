"""What `--json` prints where a site begins, moves, and decides: init, import, shadow, suspect jobs, `report load`."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from publisher.simulator.pki import Pki
from tests.generators.arc_database import load
from tests.publisher.cli.program import BASE, FILES, SOURCE, SUMMARIES, Inside

SHADOW: Final = BASE + SOURCE + FILES + "shadow = true\n" + SUMMARIES + "shadow = true\n"
SYNC: Final = (
    "APEL-sync-message: v0.1\nSite: EXAMPLE-SITE\nSubmitHost: ce9\nNumberOfJobs: 3\nMonth: 10\nYear: 2026\n%%\n"
)
BEFORE_CATEGORY: Final = 39
Answers = Iterator[tuple[str, dict[str, Any]]]


def moving_answers(folder: Path, pki: Pki, fixtures: Path) -> Answers:
    """What these commands print, by the name of the schema."""
    for name in ("begun", "shadowed", "suspected", "sampled"):
        (folder / name).mkdir()
    site = Inside(folder / "begun")
    load(fixtures / "arc" / "accounting.sql", site.folder / "accounting.db")
    yield from _begun(site, pki)
    yield from _imported(site, fixtures / "moving")
    yield from _copied(site)
    yield from _shadowed(Inside(folder / "shadowed"), fixtures)
    yield from _decided(Inside(folder / "suspected"), fixtures)
    yield from _sampled(Inside(folder / "sampled"), fixtures / "dqs")


def _begun(site: Inside, pki: Pki) -> Answers:
    client = pki.client
    words = [
        "--site", "EXAMPLE-SITE", "--source", "accounting.db", "--target", "sgas", "--url", "https://localhost:9/sgas",
        "--certificate", str(client.certificate), "--key", str(client.key), "--ca-directory", str(pki.ca_directory),
    ]  # fmt: skip
    yield "init", site("--config", "new.toml", "--json", "init", "--store", "new.db", *words).object


def _imported(site: Inside, moving: Path) -> Answers:
    with sqlite3.connect(site.folder / "publishing.db") as connection:
        connection.executescript((moving / "arc" / "publishing.sql").read_text())
    connection.close()
    apel = [str(moving / "apel" / file) for file in ("client.cfg", "parser.cfg", "sender.cfg")]
    bart = ("sgas-bart", str(moving / "bart" / "bart.conf"), "--delivered-until", "2026-11-10", "--site", "A")
    arc = ("arc", str(moving / "arc" / "arc.conf"), "--publishing-db", "publishing.db", "--output", "arc.toml")
    for words in (arc, ("apel", *apel), bart):
        yield "import", site("--json", "import", *words).ok().object
    queue = site.folder / "outgoing" / "5ba24c88"
    queue.mkdir(parents=True)
    (queue / "5ba24c8f0f129d").write_text(SYNC)
    for option in ("--dry-run", "--yes"):
        yield "import-ssm-queue", site("--json", "import", "ssm-queue", "outgoing", "summaries", option).ok().object


def _copied(site: Inside) -> Answers:
    site("collect").ok()
    yield "store-export", site("--json", "store", "export", "exported").ok().object
    site.configure(site.config.read_text().replace("store.db", "copy.db"))
    yield "store-export", site("--json", "store", "import", "exported").ok().object


def _shadowed(site: Inside, fixtures: Path) -> Answers:
    load(fixtures / "arc" / "accounting.sql", site.folder / "accounting.db")
    site("collect").ok()
    site("render", "ogf-ur", "--target", "files", "--output", "old").ok()
    site("render", "apel-summary", "--target", "summaries", "--output", "old-summaries").ok()
    site.configure(SHADOW)
    yield "shadow-compare", site("--json", "shadow", "summaries", "--against", "old-summaries").ok().object
    (file,) = (site.folder / "old").iterdir()
    text = re.sub(r"<Host[^>]*>[^<]*</Host>", "", file.read_text())
    text = text.replace("</JobUsageRecord>", "<ProjectName>chem</ProjectName></JobUsageRecord>")
    (file.parent / "broken").write_text("<UsageRecords")
    records = re.findall(r"<JobUsageRecord>.*?</JobUsageRecord>", text, re.DOTALL)
    file.write_text(text.replace(records[0], re.sub(r"(recordId=\"|<GlobalJobId>)[^\"<]*", r"\1other", records[0])))
    yield "shadow-compare", site("--json", "shadow", "files", "--against", "old").object
    yield "shadow-compare", site("--json", "shadow", "files", "--take-over", "--against", "old").object
    until = ("--delivered-until", "2026-11-01")
    yield "shadow-take-over", site("--json", "shadow", "summaries", "--take-over", *until).ok().object


def _decided(site: Inside, fixtures: Path) -> Answers:
    """A line of Grid Engine that is cut in its category, which a user writes, makes the jobs after it suspect."""
    lines = (fixtures / "gridengine" / "accounting-8.1.9").read_text().splitlines(keepends=True)
    first, *others = [line for line in lines if not line.startswith("#")][:6]
    cut = ":".join([*first.split(":")[:BEFORE_CATEGORY], "-l name=a"])
    (site.folder / "accounting").write_text(f"{cut}\n{''.join(others)}")
    site.configure(f'{BASE}[sources.ge]\ntype = "gridengine"\npath = "accounting"\ncluster = "c"\n{FILES}')
    assert site("collect").code == 3, "jobs are held"
    listed = site("--json", "collect", "--unreadable").ok().object
    yield "unreadable", listed
    pieces = [piece["piece"] for piece in listed["records"] if piece["suspect"]]
    chosen = ("--piece", str(pieces[0]), "--reason", "a test")
    yield "unreadable", site("--json", "collect", "--unreadable", "--settle", *chosen).ok().object
    yield "unreadable-accepted", site("--json", "collect", "--unreadable", "--accept", "--reason", "known").ok().object


def _sampled(site: Inside, dqs: Path) -> Answers:
    source = f'\n[sources.dqs]\ntype = "dqs"\npath = "{dqs / "act_file"}"\nstat_file = "{dqs / "stat_file"}"\n'
    site.configure(BASE + source)
    site("collect").ok()
    yield "report", site("--json", "report", "load").ok().object
