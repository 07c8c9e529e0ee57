"""What the pages point at is there: links, make targets, configurations, and every page in the navigation."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from publisher.config.target_registry import TARGET_KINDS
from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("fixtures/**/README.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors that headings get where Markdown is shown."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        goal = (page.parent / path).resolve() if path else page
        if not goal.is_relative_to(ROOT) or not goal.exists() or (anchor and anchor not in anchors(goal)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets


def test_the_readme_has_a_whole_configuration(root: Path) -> None:
    blocks = FENCE.findall((root / "README.md").read_text(encoding="utf-8"))
    assert any(language == "toml" and "[site]" in text for language, text in blocks)


def test_the_map_of_modules_is_whole(root: Path) -> None:
    text = (root / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    rows = "\n".join(line for line in text.splitlines() if " | " in line)
    named = re.findall(r"`([\w*/]+?(?:\.py|/))`", rows)
    there = {
        place.name + ("/" if place.is_dir() else "")
        for package in ("publisher", "formats")
        for place in (root / package).iterdir()
        if not place.name.startswith("__") and (place.suffix == ".py" or place.is_dir())
    }
    assert sorted(each for each in there if not any(fnmatch(each, name) for name in named)) == []
    files = {
        f"{place.relative_to(root)}" for package in ("publisher", "formats") for place in (root / package).rglob("*.py")
    }
    folders = {str(Path(file).parent) + "/" for file in files} | {"formats/schemas/"}
    assert [name for name in named if not any(fnmatch(f"/{place}", f"*/{name}") for place in files | folders)] == []


def test_the_documents_are_short(root: Path) -> None:
    words = {page_id(page): len(page.read_text(encoding="utf-8").split()) for page in root.glob("docs/**/*.md")}
    words["README.md"] = len((root / "README.md").read_text(encoding="utf-8").split())
    assert sum(words.values()) <= 43_500, sorted(words.items(), key=lambda each: -each[1])[:10]
    assert words["README.md"] <= 700


TARGET_HEADINGS = ["Settings", "What is sent", "Identity", "Corrections", "Evidence", "Limits", "Moving over"]


@pytest.mark.parametrize("page", [*(f"targets/{kind}" for kind in TARGET_KINDS), "formats/xdmod-slurm"])
def test_the_page_of_each_kind_of_target_has_the_same_headings(root: Path, page: str) -> None:
    """Open XDMoD's is that of a format, since its files are a folder's."""
    text = (root / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", FENCE.sub("", text), re.MULTILINE)
    assert [each for each in headings if each in TARGET_HEADINGS] == TARGET_HEADINGS


def test_readme_and_guarantees_name_each_kind_of_target(root: Path) -> None:
    beginning = (root / "README.md").read_text(encoding="utf-8").partition("## ")[0]
    picture = " ".join(re.findall(r"^    .*$", beginning, re.MULTILINE)).lower()
    assert [kind for kind in TARGET_KINDS if {"directory": "files"}.get(kind, kind) not in picture] == []
    guarantees = (root / "docs" / "internals" / "guarantees.md").read_text(encoding="utf-8")
    (head,) = re.findall(r"^promise .*$", guarantees, re.MULTILINE)
    assert [kind for kind in TARGET_KINDS if f"`{kind}`" not in head] == []


def test_every_page_is_in_the_navigation(root: Path) -> None:
    named = re.findall(r":\s+(\S+\.md)$", (root / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    there = [str(page.relative_to(root / "docs")) for page in root.glob("docs/**/*.md")]
    assert sorted(named) == sorted(there)
