"""What depends on a view is in its descriptor: nothing else compares its name, or lists names of views."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.report.view_kind import BY_PERIOD, VIEW_KINDS, ViewKind
from publisher.report.view_option import OPTIONS

SOURCES = Path(__file__).parents[3] / "publisher"
NAMES = {"view", "kind"}
"""What code calls the name of a view: a variable, or the last attribute."""


def _is_view(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return any(map(_is_view, node.elts))
    return (isinstance(node, ast.Name) and node.id in NAMES) or (
        isinstance(node, ast.Attribute) and node.attr == "view"
    )


def _texts(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def _decisions(tree: ast.AST) -> Iterator[int]:
    """The lines that compare the name of a view with a text, or list several names of views."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and _is_view(node.left):
            if VIEW_KINDS.keys() & set().union(*map(_texts, node.comparators)):
                yield node.lineno
        elif isinstance(node, ast.Set | ast.Tuple | ast.List | ast.Dict):
            keys = [key for key in node.keys if key] if isinstance(node, ast.Dict) else node.elts
            listed = {key.value for key in keys if isinstance(key, ast.Constant)}
            if len(listed & VIEW_KINDS.keys()) > 1 and listed <= VIEW_KINDS.keys():
                yield node.lineno


@pytest.mark.parametrize("folder", ["report", "page", "cli"])
def test_nothing_depends_on_the_name_of_a_view(folder: str) -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line}"
        for path in sorted((SOURCES / folder).rglob("*.py"))
        for line in _decisions(ast.parse(path.read_text()))
    ]
    assert found == []


def test_a_comparison_would_be_found() -> None:
    for text in ('view == "charges"', 'report.view in {"totals", "load"}', 'X = {"totals": 1, "load": 2}'):
        assert {*_decisions(ast.parse(text))} == {1}


def test_what_each_view_says_of_itself() -> None:
    assert all(kind.question.endswith("?") and kind.summary.endswith(".") for kind in VIEW_KINDS.values())
    for kind in VIEW_KINDS.values():
        assert bool(kind.keys) == ("by" in kind.options)
        assert {*kind.required} <= kind.options
        assert not kind.roles or "admin" in kind.roles
        assert {*kind.page_keys} <= {*kind.keys}
    assert {*BY_PERIOD} > {"user", "month"}
    assert all(option.text.endswith(".") for option in OPTIONS.values())


def test_an_option_that_is_not_one_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no such option: colour"):
        ViewKind(name="x", summary="", question="", options=frozenset({"colour"}), roles=frozenset({"admin"}))
