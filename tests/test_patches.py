"""Tests replace nothing in the program: what they need to be otherwise is an argument, a setting, or a real fault."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PROGRAM = ("publisher", "formats")
PATCHES = {"setattr", "delattr", "setitem", "delitem", "patch", "object", "multiple", "dict"}
"""The calls of pytest's monkeypatch and of unittest.mock that replace something."""


def patched(source: str) -> Iterator[str]:
    """Each replacement of something of the program in the source text of a test module, with its line."""
    tree = ast.parse(source)
    ours = set(_imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PATCHES:
            if node.args and _is_patch(node.func) and _is_of_program(node.args[0], ours):
                yield f"line {node.lineno}: {ast.unparse(node)[:100]}"
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and _is_of_program(target.value, ours):
                    yield f"line {node.lineno}: {ast.unparse(node)[:100]}"


def _imported(tree: ast.AST) -> Iterator[str]:
    """The names under which a module has modules, classes and functions of the program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] in PROGRAM:
                    yield name.asname or name.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PROGRAM:
            yield from (name.asname or name.name for name in node.names)


def _is_patch(function: ast.Attribute) -> bool:
    """Whether the call is `monkeypatch.…`, `mock.patch…` or `patch.…`, by whatever name a fixture has."""
    text = ast.unparse(function)
    return any(word in text for word in ("monkeypatch", "mock", "patch"))


def _is_of_program(node: ast.expr, ours: set[str]) -> bool:
    if isinstance(node, ast.Constant):
        return str(node.value).split(".")[0] in PROGRAM
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ours


@pytest.mark.parametrize("folder", sorted(path.name for path in (ROOT / "tests").iterdir() if path.is_dir()))
def test_nothing_of_the_program_is_replaced(folder: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}, {place}"
        for file in sorted(Path(ROOT, "tests", folder).rglob("*.py"))
        for place in patched(file.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "monkeypatch.setattr(http, '_GRACE_S', 1)", "monkeypatch.setattr('publisher.security.http._GRACE_S', 1)",
        "monkeypatch.setattr(http.time, 'monotonic', f)", "with mock.patch('publisher.security.http.time'): pass",
        "mock.patch.object(http, 'f')", "http._GRACE_S = 1", "publisher.api.x = 1", "http.Timing.look_s = 2",
    ],
)  # fmt: skip
def test_a_replacement_is_found(line: str) -> None:
    assert list(patched(f"import publisher.api\nfrom publisher.security import http\n{line}\n"))


@pytest.mark.parametrize(
    "line", ["monkeypatch.setenv('A', 'b')", "monkeypatch.setattr('os.link', f)", "site.now = 1", "http.get('x')"]
)
def test_what_replaces_nothing_of_the_program_is_allowed(line: str) -> None:
    assert not list(patched(f"from publisher.security import http\n{line}\n"))
