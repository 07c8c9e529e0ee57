"""Every problem of a configuration at once: each with its line, its key, and what is allowed."""

from __future__ import annotations

from pathlib import Path

from publisher.config.toml_lines import TomlLines
from tests.publisher.config.test_config import AMS, GOOD, load, refused

EVERYTHING_WRONG = """\
[site]
nam = "A"

[sources.ce1]
type = "ark"
timezone = [
  "Europe/Oslo",
]
map = [
  { when = { queue = "a" }, vo = "x" },
  { when = { quue = "a" }, vo = "x" },
]

[[sources.ce1.benchmarks]]
type = "HEPSPEC"
value = 1

[[sources.ce1.benchmarks]]
value = 1
type = "HEPSPEK"

[targets."a b"]
type = "sgas"
url = "http://sgas.example.org"
credentials.key = 7
vo = '''
[[[
'''

[serve]
port = 1e3
"""


def test_every_problem_is_reported_with_its_line(tmp_path: Path) -> None:
    error = refused(tmp_path, EVERYTHING_WRONG)
    assert [(each.line, each.key) for each in (error, *error.others)] == [
        (2, "site.nam"),
        (5, "sources.ce1.type"),
        (6, "sources.ce1.timezone"),
        (9, "sources.ce1.map.1.when.quue"),
        (20, "sources.ce1.benchmarks.1.type"),
        (24, "targets.a b.url"),
        (25, "targets.a b.credentials.key"),
        (26, "targets.a b.vo"),
        (31, "serve.port"),
    ]
    for each, line in zip((error, *error.others), error.lines, strict=True):
        assert line.startswith(f"{tmp_path / 'publisher.toml'}:{each.line}: {each.key}: ")


def test_problems_between_tables_are_reported_together(tmp_path: Path) -> None:
    long = AMS.format(name="b" * 101, url="https://x", records="apel-summary")
    error = refused(tmp_path, f"{GOOD}sources = ['other', 'cee1']\n{long}")
    found = [(each.line, each.key, str(each).partition("; known")[2]) for each in (error, *error.others)]
    assert found == [
        (10, "targets.neic.sources", ": ce1"),
        (10, "targets.neic.sources", ": ce1; did you mean 'ce1'?"),
        (11, f"targets.{'b' * 20}...", ""),
    ]


def test_a_misspelt_key_is_not_also_missing(tmp_path: Path) -> None:
    assert refused(tmp_path, GOOD.replace("url = ", "urll = ")).others == []


def test_plain_http_is_for_services_on_this_host(tmp_path: Path) -> None:
    load(tmp_path, GOOD.replace("https://sgas.example.org", "http://localhost"))


def test_the_line_of_a_key_that_is_not_there_is_that_of_its_table() -> None:
    lines = TomlLines("# a comment\r\n\r\n[a.b]\r\nc.d = [\r\n 1,\r\n]\r\n[a]\r\n")
    assert [lines.find(path) for path in (("a",), ("a", "b"), ("a", "b", "c", "d", 0), ("a", "b", "x"), ("x",))] == [
        3, 3, 4, 3, None
    ]  # fmt: skip
