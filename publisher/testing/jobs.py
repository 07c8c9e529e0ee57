"""Runs that every kind of target takes, and texts that have broken somebody's publisher."""

from __future__ import annotations

from typing import Any, Final

from formats.job import Benchmark, Job

NOW: Final = 1_795_200_000
"""2026-11-20T18:40:00Z."""
NOVEMBER: Final = 1_793_491_200
"""2026-11-01T00:00:00Z."""
OCTOBER: Final = 1_790_812_800
"""2026-10-01T00:00:00Z."""
SCORE: Final = (Benchmark("HEPscore23", 14.2),)

HOSTILE: Final = (
    "", " ", "\t", "a\nb", "\r\n", "\x00", "\x01\x0b\x0c\x1b", "\x7f", "\x85", "\u2028x\u2029", "\ud800", "x\udfffy",
    "\ufffe\uffff", "&amp;<b>\"'", "]]>", "<![CDATA[", "<!-- -->", "%%", "%27%23", "key: value",
    "a" * 121, "n" * 10_000,
    "\u202eabc\u202c", "\u05e9\u05dc\u05d5\u05dd", "\U0001f600", "e\u0301", "\u00e9\u00df",
    " lead and trail ", "None", "null", "/", "//", "/x",
    "-", ".", "a_b", "a..b", "n", "10.1.2.3", "::1", "[", "http://[", "\\", "/CN=a\nb", "CN=Ada,O=Grid\\, Inc",
    "application/pkcs7-mime", "xapplication/x-pkcs7-mimex", "a\rb",
)  # fmt: skip
"""Texts that users and batch systems may write."""


def make_job(number: int, *, wall_s: int = 100, **facts: Any) -> Job:
    """A finished run that every target selects; by default all its values are functions of its number."""
    end = facts.pop("end", NOVEMBER + 3600 + number)
    usual: dict[str, Any] = {
        "record_id": f"ur-ce1.example.org-{number:04}",
        "system": "arc",
        "status": "completed",
        "global_id": f"{number:04}",
        "local_id": str(number),
        "user_dn": "/DC=org/CN=Ada",
        "vo": "atlas",
        "cluster": "ce1.example.org",
        "endpoint_url": "https://ce1.example.org:443/arex",
        "endpoint_type": "org.nordugrid.arcrest",
        "queue": "main",
        "submit": end - wall_s - 10 if end is not None else None,
        "start": end - wall_s if end is not None else None,
        "end": end,
        "wall_ms": wall_s * 1000,
        "cpu_ms": wall_s * 500,
        "cores": 1,
        "nodes": 1,
        "benchmarks": SCORE,
    }
    return Job(**(usual | facts))


def make_jobs(count: int, first: int = 1, **facts: Any) -> list[Job]:
    """Several of them."""
    return [make_job(number, **facts) for number in range(first, first + count)]
