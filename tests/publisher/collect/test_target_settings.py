"""Switches for a site that moves over: settings of a target that decide how what it is sent looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from publisher.sources.base import Window
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job

ROLE = {"fqans": ("/atlas/Role=production",)}


def rendered(folder: Path, kind: str, name: str, **settings: Any) -> str:
    source = ListSource("ce1")
    source.add(make_job(1, **ROLE))
    site = Site(folder, [source], [RecordReceiver("there", kind)])
    site.configure("there", **settings)
    site.collect()
    return b"".join(
        message.payload for message in site.publisher.rendering(name, "there", Window()).messages()
    ).decode()


@pytest.mark.parametrize(
    ("spelling", "group", "role"),
    [
        ("plain", "atlas", "production"),
        ("arc", "/atlas", "/Role=production"),
        ("arc-6.17", "/atlas", "/Role=production"),
    ],
)
def test_groups_and_roles_at_sgas(tmp_path: Path, spelling: str, group: str, role: str) -> None:
    text = rendered(tmp_path, "sgas", "ogf-ur", vo_spelling=spelling)
    assert f"<vo:Group>{group}</vo:Group><vo:Role>{role}</vo:Role>" in text


@pytest.mark.parametrize(
    ("reported", "description"),
    [({}, "USAGE-PUBLISHER-"), ({"infrastructure_description": "JURA-ARC-SLURM"}, "JURA-ARC-SLURM")],
)
def test_infrastructure_description(tmp_path: Path, reported: dict[str, str], description: str) -> None:
    text = rendered(tmp_path, "ams", "emi-car", **reported)

    assert f'urf:description="{description}' in text


def test_arcs_fallback_for_the_months_that_it_began_and_the_real_score_from_then_on(tmp_path: Path) -> None:
    """As docs/reference/switches.md has it: HEPSPEC 1.0 until a month's first second, for jobs without a benchmark."""
    source = ListSource("ce1")
    source.add(
        make_job(1, end=OCTOBER + 7, benchmarks=()),
        make_job(2, end=NOVEMBER - 1, benchmarks=()),
        make_job(3, end=NOVEMBER, benchmarks=()),
        make_job(4, end=OCTOBER + 9),
    )
    service = SummaryReceiver("apel")
    site = Site(tmp_path, [source], [service])
    site.table["sources"]["ce1"] |= {
        "benchmark": {"type": "HEPscore23", "value": 20.5},
        "benchmarks": [{"type": "HEPSPEC", "value": 1.0, "until": "2026-11-01"}],
    }
    site.collect()
    site.publish()
    sent = {(key.split(",")[2], *key.split(",")[9:11]): sums[0] for key, sums in service.sums.items()}
    assert sent == {
        ("10", '"hepspec"', "1000"): 2, ("10", '"hepscore23"', "14200"): 1, ("11", '"hepscore23"', "20500"): 1,
    }  # fmt: skip
