"""`[sources.NAME.auditor]`: what is refused, and what a collector gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from publisher.config.file import parse
from publisher.config.schema import SourceSettings
from publisher.errors import ConfigError


def source(kind: str = "auditor", **auditor: Any) -> SourceSettings:
    tables: dict[str, Any] = {"type": kind}
    if auditor:
        tables["auditor"] = auditor
    return parse({"site": {"name": "A"}, "sources": {"a": tables}}, Path("/etc/x.toml")).sources["a"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no table": ({}, r"sources\.a\.auditor: is missing: a source of type auditor needs \[sources\.NAME\.auditor\]"),
    "another type": ({"kind": "lsf", "url": "https://a"}, r"sources\.a\.auditor: is not for a source of type lsf"),
    "no URL": ({"url": "auditor.example.org"}, "must be the URL of AUDITOR"),
    "half a URL": ({"url": "https://["}, "is not a URL"),
    "a password": ({"url": "https://me:pw@a.example.org"}, "must not contain a user name or a password"),
    "a query": ({"url": "https://a.example.org/records?limit=1"}, "must end with host, port, and path"),
    "plain HTTP": ({"url": "http://a.example.org:8000"}, "plain_http = true"),
    "a unit of another quantity": ({"url": "https://a", "components": {"cpu": {"name": "c", "unit": "MB"}}}, "'MB' is"),
    "a unit of a number": ({"url": "https://a", "components": {"nodes": {"name": "c", "unit": "s"}}}, "allowed: none"),
    "times": (
        {"url": "https://a", "components": {"cpu": [{"name": "c", "since": "2026-05-01", "until": "2026-05-01"}]}},
        "since must be before until",
    ),
    "half a certificate": ({"url": "https://a", "credentials": {"key": "k.pem"}}, "certificate and key go together"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    given, said = REFUSED[name]
    with pytest.raises(ConfigError, match=said):
        source(**given)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://a.example.org:8443/", "https://a.example.org:8443"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("postgresql://me:secret@db.example.org/auditor?sslpassword=x", "postgresql://db.example.org/auditor"),
    ],
)
def test_the_place_has_no_password(url: str, place: str) -> None:
    given = source(url=url).auditor
    assert given is not None
    assert given.place == place


def test_own_keys_replace_those_of_the_collector() -> None:
    given = source(
        url="http://a.example.org",
        plain_http=True,
        collector="slurm",
        components={"cpu": ["a", {"name": "b", "unit": "ms"}]},
        meta={"user": "u"},
    ).auditor
    assert given is not None
    assert [(rule.name, rule.unit) for rule in given.rules("cpu")] == [("a", None), ("b", "ms")]
    assert [rule.name for rule in given.rules("cores")] == ["Cores"]
    assert given.rules("gpus") == ()
    assert [given.meta_key(each) for each in ("user", "group", "queue")] == ["u", "group_id", None]
