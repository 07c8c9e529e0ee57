"""The JSON Schemas in the documents are those of what the program prints; `--rewrite-golden` makes them anew."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import ROOT
from tests.docs.json_schema import BY_NAME, DESCRIPTIONS, schema_of
from tests.generators.arc_database import load
from tests.publisher.cli.program import WHOLE, Inside

FOLDER: Final = ROOT / "docs" / "reference" / "schemas"
PAGE: Final = ROOT / "docs" / "reference" / "json.md"
WINDOW: Final = ("--since", "2026-09-01", "--until", "2026-12-01")
UNREADABLE: Final = '[sources.torque]\ntype = "torque"\npath = "torque.log"\ntimezone = "UTC"\n'
COMMANDS: Final[dict[str, list[tuple[str, ...]]]] = {
    "status": [("status",)],
    "collect": [("collect",)],
    "publish": [("publish",)],
    "run": [("run",)],
    "republish": [("republish", "files", *WINDOW, "--dry-run"), ("republish", "files", *WINDOW, "--yes")],
    "render": [
        ("render", "ogf-ur", *WINDOW), ("render", "apel-summary", *WINDOW, "--target", "summaries", "--validate"),
    ],
    "reconcile": [("reconcile", "files", "--since", "2026-09-01")],
    "check": [("check",)],
    "jobs": [("jobs", "--all"), ("jobs", "36")],
    "records": [("records", "list", "--state", "held"), ("records", "list", "--state", "rejected")],
    "unreadable": [("collect", "--unreadable")],
    "audit": [("store", "audit")],
    "report": [("report", "totals", *WINDOW), ("report", "utilization", *WINDOW, "--bin", "30d")],
    "error": [("jobs", "no-such-job"), ("publish", "no-such-target")],
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What these commands print on four sites: new; everything published; jobs held; with a shadow."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in COMMANDS}
    held = re.sub("^(benchmark|complete_since).*\n", "", WHOLE, flags=re.MULTILINE)
    shadow = held.replace("[targets.files]\n", "[targets.files]\nshadow = true\n")
    texts = [WHOLE, WHOLE + UNREADABLE, held, shadow]
    for number, text in enumerate(texts):
        site = Inside(tmp_path_factory.mktemp("schemas"), text)
        load(fixtures / "arc" / "accounting.sql", site.folder / "accounting.db")
        line = (fixtures / "torque" / "accounting" / "20261024").read_text(encoding="latin-1").splitlines()[0]
        (site.folder / "torque.log").write_text(f"{line}\nno record\n")
        if number:
            site("run")
        else:
            (site.folder / "accounting.db").write_text("not a database")
        for name, commands in COMMANDS.items():
            for words in commands:
                found = site("--json", *words).object
                if name == "error" or "error" not in found:
                    answers[name].append(found)
    return answers


@pytest.mark.parametrize("name", COMMANDS)
def test_a_schema_is_that_of_what_is_printed(
    name: str, answers: dict[str, list[dict[str, Any]]], *, rewrite_golden: bool
) -> None:
    expected = json.dumps(schema_of(f"--json: {name}", answers[name]), indent=1) + "\n"
    file = FOLDER / f"{name}.json"
    if rewrite_golden:
        file.parent.mkdir(exist_ok=True)
        file.write_text(expected, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == expected


def test_the_page_links_every_schema() -> None:
    linked = set(re.findall(r"\(schemas/(\w+)\.json\)", PAGE.read_text(encoding="utf-8")))
    assert linked == {file.stem for file in FOLDER.iterdir()} == set(COMMANDS)


def test_every_description_is_used() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in FOLDER.iterdir())
    assert [key for key in DESCRIPTIONS | dict.fromkeys(BY_NAME) if f'"{key}": {{' not in text] == []
