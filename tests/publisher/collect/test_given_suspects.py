"""A line that shows, in a later collect, that stored jobs before it may be text of a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.config import schema
from publisher.sources import make_source
from publisher.sources.base import Source
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import Site
from tests.publisher.sources.test_hostile_texts import FORMS, Submitted

START = 1_793_491_200
ENDS = {
    "gridengine": "y:0.0:NONE:0.0:0:0",
    "torque": "y",
    "pbs": "y",
    "jobcomp": "y ExitCode=0:0 ",
    "dqs": f"y:d9:9:{':'.join('0' * 22)}",
}
"""The end of a record that a user's text broke."""


def source_of(path: Path, name: str) -> Source:
    kind = FORMS[name][1]
    settings = {"type": kind, "path": path, "cluster": "c"}
    if kind in {"torque", "pbs", "slurm"}:
        settings["timezone"] = "UTC"
    return make_source("ce1", schema.SourceSettings.model_validate(settings))


def lines(name: str, number: int, user: str) -> str:
    return "".join(line + "\n" for _, line in FORMS[name][0](Submitted(number, user, START + number)))


@pytest.mark.parametrize("name", ENDS)
def test_it_may_be_held_at_the_end_of_the_log(tmp_path: Path, name: str) -> None:
    """The log is closed before what was held of it is looked at."""
    path = tmp_path / ("20261101" if name in {"torque", "pbs"} else "accounting")
    site = Site(tmp_path, [source_of(path, name)], [RecordReceiver("sgas")])
    path.write_text(lines(name, 1, "ada"))
    site.collect()
    cut = lines(name, 2, "ada").splitlines()[-1][:60]
    glued = lines(name, 3, "bob").rstrip() + lines(name, 4, "bob")
    for last in (f"{cut}\n{ENDS[name]}\n", f"{cut}\n{glued}", f"{ENDS[name]}\n"):
        with path.open("a") as stream:
            stream.write(last)
        site.collect()
    assert any("job 1 of ada is stored" in row.reason for row in site.publisher.unreadable())


@pytest.mark.parametrize("name", ENDS)
def test_what_waits_is_held_and_what_was_sent_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / ("20261101" if name in {"torque", "pbs"} else "accounting")
    site = Site(tmp_path, [source_of(path, name)], [RecordReceiver("sgas")])
    path.write_text(lines(name, 1, "ada"))
    site.collect()
    site.publish()
    assert site.counted("sgas") == {State.ACCEPTED: 1}
    with path.open("a") as stream:
        stream.write(lines(name, 2, "ada"))
    site.collect()
    assert site.counted("sgas") == {State.ACCEPTED: 1, State.WAITING: 1}
    with path.open("a") as stream:
        stream.write(ENDS[name] + "\n" + lines(name, 3, "bob"))
    site.collect()
    reasons = sorted(row.reason for row in site.publisher.unreadable() if "is stored" in row.reason)
    assert [reason.rpartition("; ")[2] for reason in reasons] == [
        "job 1 of ada is stored, and sent to sgas",
        "job 2 of ada is stored, and held for sgas",
    ]
    site.publish()
    assert site.counted("sgas") == {State.ACCEPTED: 2, State.HELD: 1}
    site.publisher.retry(State.HELD, "sgas", ())
    site.publish()
    assert site.counted("sgas") == {State.ACCEPTED: 3}
    site.assert_counters_right()
