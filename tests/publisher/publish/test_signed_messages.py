"""No content of a record stops another: whatever a user writes, every other job goes out signed, in every format.

Messages are signed for real and written to a directory; what is there is opened again with the signature checked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.apel.text import parse
from formats.job import Host, Job
from formats.xml.read import read
from publisher import plugins
from publisher.security.verify import open_signed
from publisher.simulator.pki import Pki, make_pki
from publisher.store.schema import State
from tests.publisher.add_on import JOB_NAMES, install
from tests.publisher.site import ListSource, Site, make_job
from tests.strategies import HOSTILE, hostile_text

MEDIA_TYPE = "application/pkcs7-mime"
FIELDS = (
    "name", "project", "account", "local_user", "local_group", "user_dn", "vo", "queue", "local_id", "global_id",
    "cluster", "endpoint_url", "endpoint_type", "client_host", "fqans", "hosts", "runtime_environments",
    "middleware", "lrms",
)  # fmt: skip
FORMATS = ("ogf-ur", "emi-car", "apel-job", "apel-summary", "apel-normalised-summary")
PLAIN = 3


def is_storable(text: str) -> bool:
    """Whether a source can give it: each decodes what it reads, so that no half of a surrogate pair comes through."""
    return bool(text) and not any("\ud800" <= char <= "\udfff" for char in text)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"), client_key="ec")


class SigningSite(Site):
    """A site with one target that signs what it writes to the folder `sent`."""

    def __init__(self, folder: Path, pki: Pki, records: str, jobs: list[Job]) -> None:
        source = ListSource("ce1", page=1000)
        source.add(*jobs)
        super().__init__(folder, [source], [])
        self.table["credentials"] = {"certificate": str(pki.client.certificate), "key": str(pki.client.key)}
        self.table["targets"] = {
            "apel": {"type": "directory", "layout": "files", "path": "sent", "records": records, "sign": True}
        }

    def payloads(self) -> list[bytes]:
        """The payloads that were sent, after the signature is removed."""
        return [open_signed(file.read_bytes()).payload for file in sorted((self.folder / "sent").glob("*.eml"))]


def hostile(number: int, field: str, text: str) -> Job:
    """A job with this text in one field."""
    value: Any = (text,) if field in {"fqans", "runtime_environments"} else text
    return make_job(number, **{field: (Host(text),) if field == "hosts" else value})


def sent_of(payloads: list[bytes], records: str) -> int:
    """Jobs in the messages, without the sync counts."""
    if records in {"ogf-ur", "emi-car"}:
        return sum(len(read(payload)) for payload in payloads if payload.startswith(b"<?xml"))
    found = [record for payload in payloads for record in parse(payload.decode("ascii")).records]
    counts = [record.get("NumberOfJobs") for record in found if record.get("WallDuration") is not None]
    return sum(1 if count is None else int(count) for count in counts)


def publish_all(folder: Path, pki: Pki, records: str, texts: list[str]) -> SigningSite:
    """Publish a job for each field and text among plain ones; what is not held must be there, plain ones always."""
    plain = [make_job(number) for number in range(1, PLAIN + 1)]
    rest = [
        hostile(PLAIN + 1 + index, field, text)
        for index, (field, text) in enumerate((field, text) for text in texts for field in FIELDS)
    ]
    site = SigningSite(folder, pki, records, [*plain, *rest])
    site.collect()
    done = site.publish_to("apel")
    assert (done.error, done.sent.paused) == (None, None)
    states = site.states("apel")
    assert len(states) == len(plain) + len(rest)
    assert set(states.values()) <= {State.ACCEPTED, State.HELD}
    assert {states[job.record_id] for job in plain} == {State.ACCEPTED}
    assert all(site.reasons("apel")[name] for name, state in states.items() if state is State.HELD)
    accepted = sum(state is State.ACCEPTED for state in states.values())
    assert sent_of(site.payloads(), records) == accepted
    return site


@pytest.mark.parametrize("records", FORMATS)
def test_hostile_texts_stop_nothing_but_themselves(tmp_path: Path, pki: Pki, records: str) -> None:
    publish_all(tmp_path, pki, records, list(filter(is_storable, HOSTILE)))


@pytest.mark.parametrize("records", FORMATS)
@given(texts=st.lists(hostile_text.filter(is_storable), min_size=1, max_size=3))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_stops_nothing_but_itself(
    tmp_path_factory: pytest.TempPathFactory, pki: Pki, records: str, texts: list[str]
) -> None:
    publish_all(tmp_path_factory.mktemp("site"), pki, records, texts).reopen()


@pytest.mark.parametrize("records", FORMATS)
def test_a_job_named_as_the_media_type_of_encrypted_messages_is_sent(tmp_path: Path, pki: Pki, records: str) -> None:
    site = publish_all(tmp_path, pki, records, [MEDIA_TYPE, f"x{MEDIA_TYPE.replace('/', '/x-')}"])
    held = {name for name, state in site.states("apel").items() if state is State.HELD}
    assert all("host name" in (site.reasons("apel")[name] or "") for name in held), "for what is no host name alone"
    payloads = site.payloads()
    assert not any(MEDIA_TYPE.encode() in payload for payload in payloads)
    if records in {"ogf-ur", "emi-car"}:
        jobs = [record.job for payload in payloads if payload.startswith(b"<?xml") for record in read(payload)]
        assert sum(job.name == MEDIA_TYPE for job in jobs) == 1
        assert sum(job.local_id == MEDIA_TYPE for job in jobs) == 1


def test_a_record_of_an_add_on_that_cannot_be_signed_is_held_alone(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, plugins.FORMATS, mine=JOB_NAMES)
    names = ["fine", f"a {MEDIA_TYPE}", "blåbær", "a\rb", "a\0b", "too"]
    jobs = [make_job(number, name=name) for number, name in enumerate(names, 1)]
    site = SigningSite(tmp_path, pki, "mine", jobs)
    site.collect()
    done = site.publish_to("apel")
    assert (done.error, done.sent.accepted, done.sent.held) == (None, 2, 4)
    assert site.payloads() == [b"fine\ntoo"]
    reasons = {reason for reason in site.reasons("apel").values() if reason}
    assert all(reason.startswith("mine: no message with this record can be signed: it ") for reason in reasons)
    assert len(reasons) == 4
    site.table["targets"]["apel"]["sign"] = False
    site.reopen()
    site.publisher.retry(State.HELD, "apel")
    assert site.publish_to("apel").sent.accepted == 4, "as it is, where nothing is signed"
