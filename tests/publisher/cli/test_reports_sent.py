"""Reports sent by the real command: signed, to a messaging service and to a folder."""

from __future__ import annotations

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from tests.publisher.cli.program import BASE, SOURCE, Program

pytestmark = pytest.mark.inside

REPORTS = """
[targets.portal]
type = "ams"
url = "{ams}"
auth_url = "{token}"
records = "utilization"
bin = "6h"

[targets.folder]
type = "directory"
path = "folder"
layout = "files"
records = "utilization"
period = "day"
bin = "6h"
version = "csv"
sign = true
select = {{ vo = "atlas" }}

[credentials]
certificate = "{certificate}"
key = "{key}"
ca_file = "{ca}"
"""


def test_reports_are_signed_and_sent_and_shown(collected: Program, pki: Pki) -> None:
    with Simulator(pki) as simulator:
        settings = REPORTS.format(
            ams=simulator.ams_url, token=simulator.token_url, certificate=pki.client.certificate, key=pki.client.key,
            ca=pki.ca_file,
        )  # fmt: skip
        collected.configure(BASE + SOURCE + settings)
        rendered = collected("render", "utilization", "--target", "portal", "--validate", "--json").ok().object
        sent = collected("publish", "--json").object["targets"]
        messages = simulator.ams.messages()
    months = sent["portal"]["groups"]
    assert months == rendered["files"] == len(messages) >= 2
    (collected.folder / "message").write_bytes(messages[0].content())
    for file in (collected.folder / "message", next((collected.folder / "folder").glob("*.eml"))):
        shown = collected("inspect", file).ok().out
        assert "utilization report" in shown
        assert "signed" in shown
    states = collected("status", "--json").object["targets"]
    assert states["folder"]["accepted"] == states["portal"]["accepted"] + states["portal"]["waiting"]
    state = states["portal"]
    assert {word: count for word, count in state["groups"].items() if count} == {"accepted": months}
    assert state["waiting"] == state["not_due"]
    assert collected("render", "utilization", "--target", "portal", "--diff", "--json").ok().object["new"] == 0
    assert "has no records of single jobs" in collected("render", "utilization", "--explain", "1000003").err


def test_a_target_of_other_records_shows_no_report(collected: Program) -> None:
    done = collected("render", "utilization", "--target", "summaries")
    assert (done.code, "target summaries does not receive reports" in done.err) == (2, True)
