"""The directory target: SSM's queue reader finds each batch once, completely or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest
from dirq.QueueSimple import QueueSimple  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.config import schema
from publisher.config.directory import DirectorySettings
from publisher.errors import CredentialError
from publisher.security.verify import open_signed
from publisher.simulator.pki import Pki
from publisher.targets import make_target
from publisher.targets.ams import Body
from publisher.targets.base import Accepted, Message, Oversized, Target, Transient, Unauthorised
from publisher.targets.identity import TargetContext


def target(
    path: Path,
    *,
    layout: str = "dirq",
    pki: Pki | None = None,
    now_s: float | None = None,
    batch_bytes: int = 1_000_000,
) -> Target:
    made = DirectorySettings.model_validate(
        {"type": "directory", "path": str(path), "layout": layout, "sign": pki is not None, "batch_bytes": batch_bytes}
    )
    own = schema.Credentials()
    if pki is not None:
        own = schema.Credentials(certificate=pki.client.certificate, key=pki.client.key)
    return make_target("t", made, TargetContext(credentials=own, clock=time.time if now_s is None else lambda: now_s))


def message(batch_id: str, payload: bytes = b"x\n", content_type: str = "text/plain") -> Message:
    return Message(batch_id=batch_id, format="apel-summary", content_type=content_type, payload=payload)


def queued(path: Path) -> list[bytes]:
    """What SSM would send, in its order: it locks, reads and removes each element."""
    queue = QueueSimple(str(path))
    found: list[bytes] = []
    for name in queue:
        assert queue.lock(name)
        found.append(Path(queue.get_path(name)).read_bytes())
        queue.remove(name)
    return found


def test_the_queue_reader_of_ssm_finds_the_messages_in_order(tmp_path: Path) -> None:
    made = target(tmp_path / "outgoing", now_s=1_800_000_000)
    payloads = [b"%d\n" % number for number in range(20)]
    for number, payload in enumerate(payloads):
        assert isinstance(made.post(message(f"batch-{number}", payload)), Accepted)
    assert queued(tmp_path / "outgoing") == payloads
    assert queued(tmp_path / "outgoing") == []


def test_order_survives_a_clock_that_jumps_back(tmp_path: Path) -> None:
    target(tmp_path / "q", now_s=1_800_000_000).post(message("a", b"first\n"))
    target(tmp_path / "q", now_s=1_700_000_000).post(message("b", b"second\n"))
    assert queued(tmp_path / "q") == [b"first\n", b"second\n"]


@pytest.mark.parametrize("layout", ["dirq", "files"])
def test_a_batch_sent_again_replaces_the_first(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "q"
    first = target(path, layout=layout).post(message("a", b"one\n"))
    target(path, layout=layout).post(message("b", b"two\n"))
    again = target(path, layout=layout).post(message("a", b"one\n"))
    assert (first == again) == (layout == "files"), "in a queue it is after all others again"
    assert target(path, layout=layout).post(message("a", b"one\n")) == again
    files = [file for file in path.rglob("*") if file.is_file()]
    assert sorted(file.read_bytes() for file in files) == [b"one\n", b"two\n"]


def test_a_message_that_comes_again_after_another_is_taken_last(tmp_path: Path) -> None:
    """A summary as it was before the last one: APEL keeps the last that it gets."""
    path = tmp_path / "q"
    for payload in (b"jobs 10\n", b"jobs 11\n", b"jobs 10\n"):
        target(path, now_s=1_800_000_000).post(message(payload.decode(), payload))
    assert queued(path) == [b"jobs 11\n", b"jobs 10\n"]


def test_a_message_that_comes_again_while_ssm_sends_it_is_written_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "q"
    for batch_id in "ab":
        target(path, now_s=1_800_000_000).post(message(batch_id, batch_id.encode()))
    queue = QueueSimple(str(path))
    first = next(iter(queue))
    assert queue.lock(first)
    target(path, now_s=1_800_000_000).post(message("a", b"a"))
    assert Path(queue.get_path(first)).read_bytes() == b"a"
    queue.remove(first)
    assert queued(path) == [b"b", b"a"]


@pytest.mark.parametrize("layout", ["dirq", "files"])
def test_only_we_can_read(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "q"
    before = os.umask(0)
    try:
        target(path, layout=layout).post(message("a"))
    finally:
        os.umask(before)
    for file in (path, *path.rglob("*")):
        assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600)


@pytest.mark.parametrize(
    ("batch_id", "content_type", "name"),
    [
        ("a-1", "text/plain", "a-1.txt"),
        ("a-1", "application/xml; charset=utf-8", "a-1.xml"),
        ("a-1", "application/json", "a-1.json"),
        ("a-1", "text/csv", "a-1.csv"),
        ("a-1", "image/x", "a-1.dat"),
        ("../../etc/passwd", "text/plain", "------etc-passwd-"),
    ],
)
def test_files_are_named_after_their_batch(tmp_path: Path, batch_id: str, content_type: str, name: str) -> None:
    outcome = target(tmp_path / "q", layout="files").post(message(batch_id, content_type=content_type))
    assert isinstance(outcome, Accepted)
    [file] = (tmp_path / "q").iterdir()
    assert file.name == outcome.receipt["file"]
    assert file.name.startswith(name)


@settings(max_examples=50, deadline=None)
@given(batch_ids=st.sets(st.text(min_size=1, max_size=150), min_size=1, max_size=8))
@pytest.mark.parametrize("layout", ["dirq", "files"])
def test_no_two_batches_share_a_file(
    tmp_path_factory: pytest.TempPathFactory, layout: str, batch_ids: set[str]
) -> None:
    path = tmp_path_factory.mktemp("q")
    made = target(path, layout=layout)
    for batch_id in batch_ids:
        assert isinstance(made.post(message(batch_id, batch_id.encode("utf-8"))), Accepted)
    files = [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    assert sorted(files) == sorted(batch_id.encode() for batch_id in batch_ids)


def test_a_message_is_signed_where_asked(tmp_path: Path, pki: Pki) -> None:
    outcome = target(tmp_path / "q", layout="files", pki=pki).post(message("a"))
    assert outcome == Accepted(receipt={"file": "a.eml"})
    assert open_signed((tmp_path / "q" / "a.eml").read_bytes()).payload == b"x\n"
    limit = target(tmp_path / "q", layout="files", pki=pki).payload_limit_bytes()
    assert limit is not None
    assert 990_000 < limit < 1_000_000
    assert target(tmp_path / "q", layout="files").payload_limit_bytes() == 1_000_000


def as_ssm_sends_it(pki: Pki, payload: bytes) -> int:
    """Bytes that the broker gets: signed and encrypted as SSM does it with OpenSSL, in base64, in JSON."""
    openssl = shutil.which("openssl") or pytest.skip("openssl is not installed")
    receiver = pki.issue("receiver", "receiver.example.org")
    own = ["-signer", str(pki.client.certificate), "-inkey", str(pki.client.key)]
    signed = subprocess.run([openssl, "smime", "-sign", "-text", *own], input=payload, capture_output=True, check=True)
    encrypt = [openssl, "smime", "-encrypt", "-aes256", str(receiver.certificate)]
    encrypted = subprocess.run(encrypt, input=signed.stdout, capture_output=True, check=True)
    return len(Body("x" * 100, [encrypted.stdout]))


@pytest.mark.parametrize("limit", [200_000, 1_000_000, 9_000_000])
def test_a_message_for_the_queue_of_ssm_fits_the_broker_when_ssm_has_encrypted_it(
    tmp_path: Path, pki: Pki, limit: int
) -> None:
    made = target(tmp_path / "q", batch_bytes=limit)
    size = made.payload_limit_bytes()
    assert size is not None
    payload = (b"x" * 1200 + b"\n") * (size // 1201) + b"y" * (size % 1201)
    arrives = as_ssm_sends_it(pki, payload)
    assert 0.9 * min(limit, 1_400_000) - 25_000 < arrives <= min(limit, 1_400_000)
    assert isinstance(made.post(message("a", payload)), Accepted)


def test_what_the_broker_would_refuse_is_not_put_into_the_queue_of_ssm(tmp_path: Path) -> None:
    made = target(tmp_path / "q")
    assert isinstance(made.post(message("a", b"x" * 900_000)), Oversized)
    assert not (tmp_path / "q").exists()
    plain = target(tmp_path / "files", layout="files")
    assert isinstance(plain.post(message("a", b"x" * 900_000)), Accepted)


def test_what_cannot_be_signed_is_not_written(tmp_path: Path) -> None:
    made = DirectorySettings.model_validate({"type": "directory", "path": str(tmp_path / "q"), "sign": True})
    with pytest.raises(CredentialError, match="no certificate is configured"):
        make_target("t", made, TargetContext()).post(message("a"))
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("what", ["link", "directory", "dangling link"])
def test_what_is_not_a_file_is_left_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "q"
    path.mkdir()
    victim = tmp_path / "victim"
    place = path / "a.txt"
    if what == "directory":
        place.mkdir()
    else:
        place.symlink_to(victim)
    if what == "link":
        victim.write_text("precious")
    outcome = target(path, layout="files").post(message("a"))
    assert isinstance(outcome, Unauthorised)
    assert "is a link or not a regular file" in outcome.answer
    assert victim.exists() is (what == "link")
    assert what != "link" or victim.read_text() == "precious"


def test_a_link_in_place_of_the_temporary_file_is_not_written_through(tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (path / "a.txt.tmp").symlink_to(victim)
    assert isinstance(target(path, layout="files").post(message("a")), Accepted)
    assert victim.read_text() == "precious"
    assert [file.name for file in path.iterdir()] == ["a.txt"]


def test_a_linked_directory_in_the_queue_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "q"
    first = target(path).post(message("a"))
    assert isinstance(first, Accepted)
    directory = path / first.receipt["file"].partition("/")[0]
    elsewhere = tmp_path / "elsewhere"
    directory.rename(elsewhere)
    directory.symlink_to(elsewhere)
    before = {file.name: file.read_bytes() for file in elsewhere.iterdir()}
    assert isinstance(target(path).post(message("a", b"other\n")), Unauthorised)
    assert {file.name: file.read_bytes() for file in elsewhere.iterdir()} == before


def test_a_full_disk_waits_and_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    path = tmp_path / "q"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        outcome = target(path, layout="files").post(message("a", b"x" * 100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(outcome, Transient)
    assert list(path.iterdir()) == []


def test_a_missing_parent_pauses_the_target(tmp_path: Path) -> None:
    made = target(tmp_path / "missing" / "q")
    outcome = made.post(message("a"))
    assert isinstance(outcome, Unauthorised)
    [finding] = made.check()
    assert finding.level == "red"


def test_check_makes_no_directory_that_would_belong_to_another_user(tmp_path: Path) -> None:
    [finding] = target(tmp_path / "q").check()
    assert (finding.level, "is made when it is first written to" in finding.message) == ("green", True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "q").symlink_to("nowhere")
    for path in (tmp_path / "q", tmp_path / "q" / "below"):
        [finding] = target(path).check()
        assert finding.level == "red"


def test_check_writes_and_removes(tmp_path: Path, pki: Pki) -> None:
    (tmp_path / "q").mkdir()
    [finding] = target(tmp_path / "q").check()
    assert finding.level == "green"
    assert list((tmp_path / "q").iterdir()) == []
    assert [finding.level for finding in target(tmp_path / "q", pki=pki).check()] == ["green", "green"]
