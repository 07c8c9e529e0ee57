"""What depends on a kind of source or target, or on a format, is decided by its descriptor: no code asks for a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.registry import FORMATS
from publisher.config.schema import SOURCE_KINDS, TARGET_KINDS
from publisher.config.target_kind import factory_of
from publisher.targets.base import GivesRecords, GivesSums, KeepsMessages

NAMES = {*FORMATS, *SOURCE_KINDS, *TARGET_KINDS}

OTHER_THINGS = {
    "view == 'utilization'",
    "report.view != 'utilization'",
    "scheme == 'https'",
    "url.scheme == 'https'",
    "scope.get('scheme') == 'https'",
    "request.url.scheme == 'https'",
    "parsed.scheme not in {'http', 'https'}",
    "self._view.vo_groups_for_sgas == 'arc'",
}
"""Comparisons with a word that is also a name of ours: views of reports, schemes of URLs, spellings."""

OWN_MODULES = {
    "publisher/sources/dqs.py": {"dqs"},
    "publisher/sources/pbs/": {"torque", "pbs"},
    "formats/xml/ogf_ur.py": {"ogf-ur"},
    "formats/xml/emi_car.py": {"emi-car"},
}
"""What a module may know: the name of what it is the home of."""


def _words(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _is_literal(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant | ast.Set | ast.Tuple | ast.List)


def comparisons(code: str) -> Iterator[tuple[str, set[str]]]:
    """Each comparison with a literal, match, or call of `startswith`, with the names of kinds in it."""
    for node in ast.walk(ast.parse(code)):
        words: set[str] = set()
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            words = {word for side in sides if _is_literal(side) for word in _words(side)} & NAMES
        elif isinstance(node, ast.MatchValue):
            words = set(_words(node)) & NAMES
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
            stems = {word.rstrip("-") for argument in node.args for word in _words(argument)}
            words = {name for name in NAMES for stem in stems if f"{name}-".startswith(f"{stem}-")}
        if words:
            yield ast.unparse(node), words


@pytest.mark.parametrize("package", ["formats", "publisher"])
def test_nothing_is_decided_by_a_name(root: Path, package: str) -> None:
    found = []
    for file in sorted((root / package).rglob("*.py")):
        place = str(file.relative_to(root))
        own = {name for home, names in OWN_MODULES.items() if place.startswith(home) for name in names}
        for text, names in comparisons(file.read_text(encoding="utf-8")):
            if text not in OTHER_THINGS and not names <= own:
                found.append(f"{place}: {text}")
    assert found == []


def test_nothing_is_decided_by_a_class_of_settings(root: Path) -> None:
    classes = {kind.settings.__name__ for kind in TARGET_KINDS.values()}
    found = [
        f"{file.relative_to(root)}: {ast.unparse(node)}"
        for file in sorted((root / "publisher").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"isinstance", "issubclass"}
        and any(name in ast.unparse(node) for name in classes)
    ]
    assert found == []


SERVICES = {*FORMATS, *TARGET_KINDS, "apel"}

HOMES: dict[str, set[str]] = {
    **{f"publisher/targets/{name}.py": {name} for name in TARGET_KINDS},
    "publisher/config/": SERVICES,
    "publisher/migrate/": SERVICES,
    "publisher/simulator/": SERVICES,
    "publisher/inspect/": SERVICES,
    "publisher/sources/auditor/": {"auditor"},
    "publisher/cli/import_cmd.py": {"apel"},
    "publisher/security/": {"https"},
    "publisher/page/": {"https", "utilization"},
    "publisher/report/": {"utilization"},
    "publisher/store/groups.py": {"utilization"},
}
"""Where the name of a format or of a kind of service may stand: the registries and settings, what reads other programs'
files, the home of a kind; and where the word is a source, a scheme of URLs, a view, or the one report."""


def _docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(statement, ast.Expr):
                yield statement.value


def test_no_other_module_names_a_format_or_kind_of_service(root: Path) -> None:
    found = []
    for file in sorted((root / "publisher").rglob("*.py")):
        place = str(file.relative_to(root))
        allowed = {name for home, names in HOMES.items() if place.startswith(home) for name in names}
        tree = ast.parse(file.read_text(encoding="utf-8"))
        docs = set(_docstrings(tree))
        found += [
            f"{place}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and node not in docs
            and isinstance(node.value, str)
            and node.value in SERVICES - allowed
        ]
    assert found == []


def test_no_other_module_imports_the_rules_of_a_service(root: Path) -> None:
    """Such as its limits and the columns by which it adds up, which are data of its format and kind."""
    homes = ("publisher/targets/", "publisher/migrate/", "publisher/simulator/", "publisher/inspect/")
    found = [
        f"{file.relative_to(root)}: {name.name}"
        for file in sorted((root / "publisher").rglob("*.py"))
        if not str(file.relative_to(root)).startswith(homes)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "formats.rules"
        for name in node.names
        if name.name.endswith("Rules")
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "settings.type == 'sgas'",
        "records in {'ogf-ur', 'emi-car'}",
        "'arc' != job.system",
        "format_name not in ('apel-sync',)",
        "records.startswith('apel')",
        "records.startswith(('apel-', 'emi-car'))",
        "match kind:\n    case 'slurm':\n        pass",
    ],
)
def test_a_comparison_is_seen(code: str) -> None:
    assert list(comparisons(code))


@pytest.mark.parametrize("name", TARGET_KINDS)
def test_the_class_of_a_kind_of_target_shows_what_the_descriptor_says(name: str) -> None:
    made: Any = factory_of(TARGET_KINDS[name])
    assert made.kind == name
    shows = {
        "query": all(hasattr(made, each) for each in ("usage", "last_registration_s")),
        "records": hasattr(made, "records"),
        "totals": hasattr(made, "totals"),
        "files": all(hasattr(made, each) for each in ("kept", "keeps")),
    }
    assert [each for each, does in shows.items() if does] == [
        each for each in shows if each == TARGET_KINDS[name].evidence
    ]
    assert {"usage", "last_registration_s"} <= set(dir(GivesSums))
    assert {"kept", "keeps"} <= set(dir(KeepsMessages))
    assert "records" in dir(GivesRecords)


def test_a_format_has_another_name_than_services() -> None:
    """A service that is read and sent to has one name."""
    assert not FORMATS.keys() & (SOURCE_KINDS.keys() | TARGET_KINDS.keys())
    assert SOURCE_KINDS.keys() & TARGET_KINDS.keys() == {"auditor"}
