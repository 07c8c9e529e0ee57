"""A class name exists once in the program and its tests, private ones included: a search for it finds one class."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from typing import Final

from tests.conftest import ROOT

CLASS_LINE: Final = re.compile(r"^\s*class\s+(\w+)", re.MULTILINE)


def test_a_class_name_exists_once() -> None:
    paths = [path for folder in ("publisher", "formats", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
    lines = {path: [name.strip("_") for name in CLASS_LINE.findall(path.read_text())] for path in paths}
    repeated = {
        name for name, count in Counter(name for names in lines.values() for name in names).items() if count > 1
    }
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        if repeated.isdisjoint(lines[path]):
            continue  # to parse everything takes five seconds; such a line may be of a text
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name.strip("_")].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
