"""Tests replace nothing in the program: what they need to be otherwise is an argument, a setting, or a real fault."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from tests.conftest import ROOT

THIS = Path(__file__).name
PROGRAM = ("publisher", "formats")
PATCHES = {"setattr", "delattr", "setitem", "delitem", "patch", "object", "multiple", "dict"}
"""The calls of pytest's monkeypatch and of unittest.mock that replace something."""
BUILT_IN = {"setattr", "delattr", "patch"}
MODULES = "sys.modules"
CHANGES = {"pop", "update", "setdefault", "clear", "popitem"}
TEMPLATE = re.compile(r"\{(\w+)(?:![rsa])?\}")


def patched(source: str) -> Iterator[str]:
    """Each replacement of something of the program, or of a module, in the source text of a test module, with its line;
    also in texts that are programs themselves."""
    tree = ast.parse(source)
    ours = set(_imported(tree))
    for node in ast.walk(tree):
        if _replaces(node, ours):
            yield f"line {node.lineno}: {ast.unparse(node)[:100]}"  # type: ignore[attr-defined]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            with suppress(SyntaxError):  # it is no program
                text = TEMPLATE.sub(r"\1", node.value).replace("{{", "{").replace("}}", "}")
                yield from (f"line {node.lineno}, in a text: {each}" for each in patched(dedent(text)))


def _replaces(node: ast.AST, ours: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return _is_patch(node, ours)
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    owners = [each.value for each in targets if isinstance(each, ast.Attribute | ast.Subscript)]
    return any(_is_of_program(owner, ours) or _is_modules(owner) for owner in owners)


def _imported(tree: ast.AST) -> Iterator[str]:
    """The names under which a module has modules, classes and functions of the program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] in PROGRAM:
                    yield name.asname or name.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PROGRAM:
            yield from (name.asname or name.name for name in node.names)


def _is_patch(call: ast.Call, ours: set[str]) -> bool:
    """Whether the call is `setattr`, `monkeypatch.…`, `mock.patch…` or `patch.…`, by whatever name a fixture has, of
    something of the program, or changes `sys.modules`."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in CHANGES:
        return _is_modules(function.value)
    if isinstance(function, ast.Name):
        is_patch = function.id in BUILT_IN
    else:
        text = ast.unparse(function)
        named = any(word in text for word in ("monkeypatch", "mock", "patch"))
        is_patch = isinstance(function, ast.Attribute) and function.attr in PATCHES and named
    return is_patch and bool(call.args) and (_is_of_program(call.args[0], ours) or _is_modules(call.args[0]))


def _is_modules(node: ast.expr) -> bool:
    return ast.unparse(node).endswith((MODULES, f"'{MODULES}'"))


def _is_of_program(node: ast.expr, ours: set[str]) -> bool:
    if isinstance(node, ast.Constant):
        return str(node.value).split(".")[0] in PROGRAM
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"vars", "import_module", "importlib.import_module"}:
        return bool(node.args) and _is_of_program(node.args[0], ours)
    return isinstance(node, ast.Name) and node.id in ours


@pytest.mark.parametrize("place", sorted(path.name for path in (ROOT / "tests").iterdir() if path.name != THIS))
def test_nothing_of_the_program_is_replaced(place: str) -> None:
    path = ROOT / "tests" / place
    found = [
        f"{file.relative_to(ROOT)}, {line}"
        for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
        for line in patched(file.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "monkeypatch.setattr(http, '_GRACE_S', 1)", "monkeypatch.setattr('publisher.security.http._GRACE_S', 1)",
        "monkeypatch.setattr(http.time, 'monotonic', f)", "with mock.patch('publisher.security.http.time'): pass",
        "mock.patch.object(http, 'f')", "http._GRACE_S = 1", "publisher.api.x = 1", "http.Timing.look_s = 2",
        "setattr(http, 'x', f)", "delattr(http.Timing, 'x')", "patch('publisher.api.x')", "http.TABLE['x'] = 1",
        "vars(http)['x'] = f", "http.__dict__['x'] = f", "del http.x", "import_module('publisher.api').x = f",
        "monkeypatch.setitem(sys.modules, 'distributed', None)", "sys.modules['pbs'] = module",
        "del sys.modules['duckdb']", "sys.modules.pop('duckdb')", "monkeypatch.delitem('sys.modules', 'x')",
        "mock.patch.dict('sys.modules', x=None)",
        "KILLED = 'from publisher.store.admin import erase\\nerase.registry.record_action = die\\n'",
        "TEXT = 'import sys\\nfor name in {missing!r}:\\n    sys.modules[name] = None\\n'",
    ],
)  # fmt: skip
def test_a_replacement_is_found(line: str) -> None:
    assert list(patched(f"import publisher.api\nfrom publisher.security import http\n{line}\n"))


@pytest.mark.parametrize(
    "line",
    [
        "monkeypatch.setenv('A', 'b')", "monkeypatch.setattr('os.link', f)", "site.now = 1", "http.get('x')",
        "sys.modules['x'].f()", "sys.meta_path.insert(0, Missing())", "TEXT = 'assert x not in sys.modules'",
    ],
)  # fmt: skip
def test_what_replaces_nothing_of_the_program_is_allowed(line: str) -> None:
    assert not list(patched(f"from publisher.security import http\n{line}\n"))
