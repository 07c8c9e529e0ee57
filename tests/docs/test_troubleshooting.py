"""Every kind of error has its entry in the documents, and every entry an error; exit codes are those of the code."""

from __future__ import annotations

import importlib
import pkgutil
import re

import publisher
from publisher.errors import PublisherError
from tests.conftest import ROOT
from tests.docs import man

PAGE = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")


def _kinds(of: type[PublisherError]) -> set[type[PublisherError]]:
    return {kind for child in of.__subclasses__() for kind in {child, *_kinds(child)}}


def _all() -> set[type[PublisherError]]:
    for module in pkgutil.walk_packages(publisher.__path__, "publisher."):
        if module.name.endswith((".errors", ".base")):
            importlib.import_module(module.name)
    return {kind for kind in _kinds(PublisherError) if kind.__module__.startswith("publisher.")}


def test_every_error_has_an_entry_and_every_entry_an_error() -> None:
    public = {kind.__name__ for kind in _all() if not kind.__name__.startswith("_")}
    assert set(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)) == public


def test_exit_codes_are_those_of_the_errors() -> None:
    documented = {int(code) for code, _ in man.EXIT_CODES}
    assert {kind.exit_code for kind in _all()} <= documented


def test_every_error_says_what_it_is() -> None:
    for kind in _all():
        assert kind.__doc__, kind
