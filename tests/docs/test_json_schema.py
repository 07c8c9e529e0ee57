"""The JSON Schemas in the documents are those of what the program prints; `--rewrite-golden` makes them anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.config.target_registry import TARGET_KINDS
from publisher.simulator.pki import make_pki
from tests.conftest import ROOT
from tests.docs import every_target
from tests.docs.commands import commands
from tests.docs.json_schema import BY_NAME, DESCRIPTIONS, report_schema, schema_of, violations
from tests.docs.moving_answers import moving_answers
from tests.docs.reconcile_answers import reconcile_answers
from tests.generators.arc_database import load
from tests.publisher.cli.program import WHOLE, Inside

FOLDER: Final = ROOT / "docs" / "reference" / "schemas"
PAGE: Final = ROOT / "docs" / "reference" / "json.md"
WINDOW: Final = ("--since", "2026-09-01", "--until", "2026-12-01")
UNREADABLE: Final = (
    '[sources.torque]\ntype = "torque"\npath = "torque.log"\ntimezone = "UTC"\ncomplete_since = "2026-09-01"\n'
    'benchmark = { type = "HEPscore23", value = 14.2 }\n'
)
COMMANDS: Final[dict[str, list[tuple[str, ...]]]] = {
    "status": [("status",)],
    "history": [("history",), ("history", "1")],
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
    "store-forget": [("store", "forget", every_target.PERSON, "--yes")],
    "store-purge": [("store", "purge", "--before", "2026-10", option) for option in ("--dry-run", "--yes")],
    "error": [("jobs", "no-such-job"), ("publish", "no-such-target")],
}  # fmt: skip
OF_FORMATS: Final[list[tuple[str, tuple[str, ...]]]] = [
    ("republish", ("republish", "{name}", *WINDOW, "--yes")),
    ("render", ("render", "{format}", "--target", "{name}", *WINDOW, "--validate")),
    ("render-diff", ("render", "{format}", "--target", "{name}", *WINDOW, "--diff")),
    ("render-explain", ("render", "{format}", "--target", "{name}", "--explain", every_target.REFUSED)),
]
"""Commands for a target of each format, on a site that has every kind of target."""
OF_DOUBLE: Final = {
    "auditor-auditor-record": "records", "waldur-waldur-usage": "totals", "directory-xdmod-slurm": "files",
}  # fmt: skip
"""Evidence of targets that the simulator does not have, and of files by day."""
OF_DOUBLES: Final = ("directory-", "https-", "auditor-", "waldur-")
DECIDED: Final = ("--target", "sgas-ogf-ur", "--state", "rejected")
ON_EVERY_TARGET: Final[list[tuple[str, tuple[str, ...]]]] = [
    ("status", ("status",)),
    ("check", ("check",)),
    ("collect", ("collect",)),
    ("publish-dry-run", ("publish", "--dry-run")),
    ("run", ("run",)),
    ("publish", ("publish",)),
    ("status", ("status",)),
    ("check", ("check",)),
    ("jobs", ("jobs", every_target.REFUSED)),
    ("records", ("records", "list", "--state", "rejected")),
    ("records", ("records", "list", "--state", "held")),
    ("records-show", ("records", "show", every_target.REFUSED, "--state", "rejected")),
    ("records-decision", ("records", "waive", every_target.REFUSED, *DECIDED, "--reason", "a test job")),
    ("records-decision", ("records", "retry", "--target", "directory-apel-job", "--state", "held")),
    *(("report", ("report", view, *WINDOW)) for view in ("utilization", "totals", "occupation", "waiting", "scarce")),
    *(("report", ("report", view, *WINDOW, "--by", "vo")) for view in ("utilization", "totals", "waiting")),
    *(("report", ("report", view, *WINDOW)) for view in ("paths", "efficiency", "energy", "late")),
    ("report", ("report", "totals", *WINDOW, "--compare", "previous")),
    ("report", ("report", "allocations")),
    ("report", ("report", "sql", "SELECT count(*) AS jobs FROM runs")),
    ("report", ("report", "charges", "--month", "2026-10")),
    ("report", ("report", "job", *WINDOW, "--job", "*")),
    (
        "report-statements",
        ("report", "statements", "--month", "2026-10", "--by", "project", "--output", "statements", "--format", "text"),
    ),
    ("report-focus", ("report", "focus", "--month", "2026-10", "--output", "focus")),
    ("month-statements", ("month", "close", "2026-10", "--yes")),
    ("report-statements", ("report", "statements", "--month", "2026-10", "--output", "closed", "--format", "text")),
    ("months", ("month", "list")),
    ("month-statements", ("month", "cancel", "2026-10", "--reason", "wrong", "--yes")),
    ("archive", ("archive", "kept")),
    ("inspect", ("inspect", "out-ogf-ur", "out-apel-job", "out-apel-summary", "out-utilization", "torque.log")),
    ("shadow", ("shadow", "shadow")),
    ("store-check", ("store", "check")),
    ("store-backup", ("store", "backup", "backup.db")),
    ("store-copy", ("store", "copy", "sqlite:///backup.db", "sqlite:///copy.db")),
    ("store-spool", ("store", "spool")),
    ("store-export", ("store", "export", "exported")),
    ("store-accept-restored", ("store", "accept-restored", "--yes")),
    ("reconcile", ("reconcile",)),
    ("status", ("status",)),
]


RENAMED: Final = "store-rename-source"
OF_MOVES: Final = {
    "init": ("init",), "import": ("import", "apel"), "import-ssm-queue": ("import", "ssm-queue"),
    "shadow-compare": ("shadow",), "shadow-take-over": ("shadow",), "unreadable-accepted": ("collect",),
}  # fmt: skip
"""What `moving_answers` has besides other schemas, with a command that prints it."""
ALIKE: Final = {
    ("import", "arc"): "import", ("import", "sgas-bart"): "import", ("store", "import"): "store-export",
    ("store", "rename-source"): RENAMED, ("report", "load"): "report",
}  # fmt: skip
WITHOUT_JSON: Final = {("serve",), ("demo",)}
"""They run until they are stopped, or show other commands."""
NAMES: Final = sorted({*COMMANDS, RENAMED, *OF_MOVES, *(name for name, _ in (*ON_EVERY_TARGET, *OF_FORMATS))})


def on_every_target(folder: Path, fixtures: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What commands print on such a site, by the name of the schema."""
    with every_target.services(folder / "pki") as services:
        site = every_target.site(folder, services, fixtures)
        tables = every_target.targets(services)
        for name, words in ON_EVERY_TARGET:
            yield name, site("--json", *words).object
            if name == "run":
                services.repaired()
        for target in tables:
            yield "republish", site("--json", "republish", target, *WINDOW, "--dry-run").object
            for name, words in OF_FORMATS if target.startswith(OF_DOUBLES) else ():
                filled = [word.format(name=target, format=target.partition("-")[2]) for word in words]
                yield name, site("--json", *filled).object


@pytest.fixture(scope="module")
def reconciled(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What `reconcile` prints, by what it is of."""
    pki = make_pki(tmp_path_factory.mktemp("pki"), client_key="ec")
    return dict(reconcile_answers(tmp_path_factory.mktemp("reconciled"), pki, fixtures))


@pytest.fixture(scope="module")
def answers(
    fixtures: Path, reconciled: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """What these commands print on four sites: new; everything published; jobs held; with a shadow."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
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
        for name, asked in COMMANDS.items():
            for words in asked:
                found = site("--json", *words).object
                answers[_kind_of(name, found)].append(found)
        if number == 1:  # last of all, since no other command knows the source by its new name
            site.configure(text.replace("[sources.torque]", "[sources.main]"))
            answers[RENAMED].append(site("--json", "store", "rename-source", "torque", "main").object)
    for name, found in on_every_target(tmp_path_factory.mktemp("every-target"), fixtures):
        kind = _kind_of(name, found)
        assert name in {kind, "render-explain"}, found  # utilization has no records to explain
        answers[kind].append(found)
    answers["reconcile"] += reconciled.values()
    folder = tmp_path_factory.mktemp("moving")
    for name, found in moving_answers(folder, make_pki(folder / "pki", client_key="ec"), fixtures):
        answers[name].append(found)
    return answers


def test_what_reconcile_prints_of_each_target_follows_its_schema(reconciled: dict[str, dict[str, Any]]) -> None:
    schema = json.loads((FOLDER / "reconcile.json").read_text(encoding="utf-8"))
    assert {name: violations(schema, answer) for name, answer in reconciled.items()} == {
        name: [] for name in reconciled
    }
    assert {answer["targets"][name]["evidence"] for answer in reconciled.values() for name in answer["targets"]} == {
        "query", "files", "file", "receipts",
    }  # fmt: skip


def test_each_kind_of_target_was_sent_something_and_compared(answers: dict[str, list[dict[str, Any]]]) -> None:
    """The schemas know what is printed of success, not only of failure."""
    sent = [(name, one) for each in answers["publish"] + answers["run"] for name, one in each["targets"].items()]
    assert {name.partition("-")[0] for name, one in sent if one["accepted"]} >= TARGET_KINDS.keys()
    compared = {name: one for each in answers["reconcile"] for name, one in each["targets"].items() if one["agrees"]}
    evidence = {name: compared[name]["evidence"] for name in OF_DOUBLE}
    assert evidence == OF_DOUBLE
    assert all(any(month["confirmed"] for month in compared[name]["months"].values()) for name in OF_DOUBLE)


def test_a_value_that_breaks_a_schema_is_found() -> None:
    schema = schema_of("x", [{"a": 1, "b": None, "months": {"2026-11": {"c": [True]}}}])
    assert violations(schema, {"a": 2, "b": "text", "months": {}}) == []
    assert violations(schema, {"a": None, "months": {"x": {"c": [1]}}, "d": 1}) == [
        "$: lacks b",
        "$.a: null, not integer",
        "$.months.x.c[0]: integer, not boolean",
        "$: d is not described",
    ]


def _kind_of(name: str, found: dict[str, Any]) -> str:
    return "error" if found.keys() == {"error", "exit_code"} else name


def test_the_schemas_are_those_of_what_is_printed(
    answers: dict[str, list[dict[str, Any]]], *, rewrite_golden: bool
) -> None:
    for name in NAMES:
        title = f"--json: {name}"
        schema = report_schema(title, answers[name]) if name == "report" else schema_of(title, answers[name])
        expected = json.dumps(schema, indent=1) + "\n"
        file = FOLDER / f"{name}.json"
        if rewrite_golden:
            file.parent.mkdir(exist_ok=True)
            file.write_text(expected, encoding="utf-8")
        assert file.read_text(encoding="utf-8") == expected


def test_every_command_has_a_schema() -> None:
    asked = [words for each in COMMANDS.values() for words in each]
    asked += [words for _, words in (*ON_EVERY_TARGET, *OF_FORMATS)] + list(OF_MOVES.values())
    known = {path for path, _ in commands() if any(words[: len(path)] == path for words in asked)}
    assert {path for path, _ in commands()} - known == ALIKE.keys() | WITHOUT_JSON
    assert {*ALIKE.values()} <= {*NAMES}


def test_the_page_links_every_schema() -> None:
    linked = set(re.findall(r"\(schemas/([\w-]+)\.json\)", PAGE.read_text(encoding="utf-8")))
    assert linked == {file.stem for file in FOLDER.iterdir()} == set(NAMES)


def test_every_description_is_used() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in FOLDER.iterdir())
    assert [key for key in DESCRIPTIONS | dict.fromkeys(BY_NAME) if f'"{key}": {{' not in text] == []
