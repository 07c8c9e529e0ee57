"""Every kind of error has its entry in the documents, and every entry an error; exit codes are those of the code."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re

import publisher
from formats.rule_codes import RuleCode
from publisher.errors import PublisherError
from publisher.reason import ReasonCode
from tests.conftest import ROOT
from tests.docs import man

PAGE = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if "|" in line]
"""The cells of its tables: class, message, what to do."""


def _kinds(of: type[PublisherError]) -> set[type[PublisherError]]:
    return {kind for child in of.__subclasses__() for kind in {child, *_kinds(child)}}


def _all() -> set[type[PublisherError]]:
    for module in pkgutil.walk_packages(publisher.__path__, "publisher."):
        if module.name.endswith((".errors", ".base")):
            importlib.import_module(module.name)
    return {kind for kind in _kinds(PublisherError) if kind.__module__.startswith("publisher.")}


def test_every_error_has_an_entry_and_every_entry_an_error() -> None:
    public = {kind.__name__ for kind in _all() if not kind.__name__.startswith("_")}
    assert {name for row in ROWS for name in re.findall(r"^`(\w+Error)`$", row[0])} == public


def _texts() -> str:
    """Every text in the code, a line each; what a format string fills in is `…`."""
    texts = []
    for file in (*ROOT.glob("publisher/**/*.py"), *ROOT.glob("formats/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts += ["".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)]  # type: ignore[misc]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts += [node.value]
    return "\n".join(texts)


def test_every_message_that_is_quoted_is_one_of_the_program() -> None:
    texts = _texts()
    quoted = [quote for row in ROWS for quote in re.findall(r"`([^`]+)`", row[1])]
    assert len(quoted) > 20
    parts = [part for quote in quoted for part in map(str.strip, quote.split("…")) if part]
    assert [part for part in parts if part not in texts] == []


def test_every_reason_code_that_is_explained_is_one_of_the_program() -> None:
    page = (ROOT / "docs" / "how-to" / "held-or-refused.md").read_text(encoding="utf-8")
    _, _, table = page.partition("reason code | do")
    rows = [line.partition(" | ")[0] for line in table.partition("\n\n")[0].splitlines()]
    codes = {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)}
    assert len(codes) > 10
    assert codes <= {code.value for code in (*ReasonCode, *RuleCode)}


def test_exit_codes_are_those_of_the_errors() -> None:
    documented = {int(code) for code, _ in man.EXIT_CODES}
    assert {kind.exit_code for kind in _all()} <= documented


def test_every_error_says_what_it_is() -> None:
    for kind in _all():
        assert kind.__doc__, kind
