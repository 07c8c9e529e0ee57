"""Messages out of gzip, AMS JSON, signatures and encryption; and everything a hostile file can do."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import zlib
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7
from hypothesis import given
from hypothesis import strategies as st

from formats.base import Format, InspectedRecord, InspectedText, Violation
from formats.xml.read import MAX_BYTES
from publisher.errors import CredentialError, UsageError
from publisher.inspect.inspect import Inspected, inspect_content, inspect_files
from publisher.inspect.unwrap import MOST_LAYERS, MOST_MESSAGES, DecryptionKeys, load_keys
from publisher.plugins import FORMATS
from publisher.security.credentials import load_credentials
from publisher.security.sign import Signer
from publisher.simulator.pki import Credential, Pki, make_pki
from tests.publisher.add_on import install

NOW = int(datetime.now(UTC).timestamp())
SYNC = b"APEL-sync-message: v0.1\nSite: EXAMPLE-SITE\nSubmitHost: ce1\nNumberOfJobs: 7\nMonth: 10\nYear: 2026\n"
NO_KEYS = DecryptionKeys()


def _read_names(text: str) -> InspectedText | None:
    if not text.startswith("names"):
        return None
    first, *names = text.split("\n")
    if first != "names 1":
        raise ValueError(f"{first!r} is no version of mine")
    records = [InspectedRecord(number, name) for number, name in enumerate(names, 1)]
    return InspectedText(
        records, [Violation("error", one.number, "name", "empty", "mine") for one in records if not one.id]
    )


NAMES = Format(name="mine", title="Names of jobs", shape="record", make=lambda _: None, inspected=_read_names)
DEFECTIVE = msgspec.structs.replace(NAMES, name="broken", title="A defective one", inspected=lambda text: text.nosuch)  # type: ignore[attr-defined]


def test_messages_of_an_add_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"mine": f"{__name__}:NAMES", "broken": f"{__name__}:DEFECTIVE", "gone": "nosuch:FORMAT"}
    install(tmp_path, monkeypatch, FORMATS, **points)
    (good,) = inspect_content("f", b"names 1\nada\n", NO_KEYS, NOW)
    assert good.inspection.format == "mine"
    assert [record.id for record in good.inspection.records] == ["ada", ""]
    assert [one.rule for one in good.inspection.violations] == ["empty"]
    (other,) = inspect_content("f", b"names 2", NO_KEYS, NOW)
    assert other.inspection.title == "text of an unknown format"
    rules = {one.source: one.rule for one in other.inspection.violations}
    assert rules.keys() == {"Names of jobs", "A defective one"}
    assert rules["Names of jobs"] == "'names 2' is no version of mine"
    assert rules["A defective one"].startswith("the add-on 'broken' failed as a format: AttributeError")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@cache
def signer(credential: Credential) -> Signer:
    return Signer(load_credentials(credential.certificate, credential.key, now_s=NOW), clock=lambda: NOW)


def only(content: bytes, keys: DecryptionKeys = NO_KEYS, now: int = NOW) -> Inspected:
    (inspected,) = inspect_content("m", content, keys, now)
    return inspected


def first_error(inspected: Inspected) -> str:
    return next(one.rule for one in inspected.inspection.violations if one.level == "error")


def published(*payloads: bytes) -> bytes:
    data = [{"attributes": {"empaid": "1"}, "data": base64.b64encode(payload).decode()} for payload in payloads]
    return json.dumps({"messages": data}).encode()


def pulled(*payloads: bytes) -> bytes:
    messages = [
        {"ackId": f"a:{number}", "message": {"messageId": str(number), "data": base64.b64encode(payload).decode()}}
        for number, payload in enumerate(payloads)
    ]
    return json.dumps({"receivedMessages": messages}).encode()


def test_plain_and_compressed() -> None:
    for content, kinds in (
        (SYNC, []),
        (gzip.compress(SYNC), ["gzip"]),
        (gzip.compress(SYNC[:9]) + gzip.compress(SYNC[9:]), ["gzip"]),
    ):
        inspected = only(content)
        assert inspected.inspection.format == "apel-sync"
        assert inspected.inspection.taken
        assert [layer.kind for layer in inspected.layers] == kinds


def test_a_signed_message_shows_its_signer(pki: Pki) -> None:
    inspected = only(signer(pki.client).sign(SYNC))
    (layer,) = inspected.layers
    assert (layer.kind, layer.signer, layer.trusted) == ("signed", pki.client.dn, None)
    assert inspected.inspection.format == "apel-sync"
    assert inspected.inspection.taken


def test_authorities_are_asked_if_they_are_given(pki: Pki, tmp_path: Path) -> None:
    message = signer(pki.client).sign(SYNC)
    for authorities in (pki.ca_file, pki.ca_directory):
        inspected = only(message, load_keys(None, None, authorities))
        assert inspected.layers[0].trusted is True
        assert inspected.inspection.taken
    stranger = make_pki(tmp_path / "other")
    inspected = only(message, load_keys(None, None, stranger.ca_file))
    assert inspected.layers[0].trusted is False
    assert "no trusted authority" in first_error(inspected)
    assert inspected.inspection.records, "what is in it is shown all the same"


def test_an_expired_signer_is_refused(pki: Pki) -> None:
    later = NOW + int(timedelta(days=400).total_seconds())
    message = signer(pki.client).sign(SYNC)
    assert "not valid at" in first_error(only(message, now=later))
    assert "not valid at" in first_error(only(message, load_keys(None, None, pki.ca_file), now=later))


def test_an_altered_message_is_not_believed(pki: Pki) -> None:
    inspected = only(signer(pki.client).sign(SYNC).replace(b"NumberOfJobs: 7", b"NumberOfJobs: 9"))
    assert not inspected.inspection.taken
    assert not inspected.inspection.records
    assert "altered after it was signed" in first_error(inspected)


def test_an_encrypted_message_needs_its_receivers_key(pki: Pki) -> None:
    receiver = pki.issue("receiver", "receiver")
    signed = signer(pki.client).sign(SYNC)
    builder = pkcs7.PKCS7EnvelopeBuilder().set_data(signed).add_recipient(receiver.load())
    encrypted = builder.encrypt(Encoding.SMIME, [pkcs7.PKCS7Options.Binary])
    assert "--key" in first_error(only(encrypted))
    inspected = only(encrypted, load_keys(receiver.certificate, receiver.key, None))
    assert [layer.kind for layer in inspected.layers] == ["encrypted", "signed"]
    assert inspected.inspection.format == "apel-sync"
    assert "decrypted" in first_error(only(encrypted, load_keys(pki.client.certificate, pki.client.key, None)))


def test_a_signed_message_that_names_the_encrypted_type_is_taken_for_one(pki: Pki) -> None:
    payload = SYNC.replace(b"ce1", b"application/pkcs7-mime")
    inspected = only(
        signer(pki.client).sign(SYNC).replace(b"MIME-Version", b"X-Was: application/pkcs7-mime\nMIME-Version")
    )
    assert "encrypted" in first_error(inspected)
    assert not only(payload).inspection.taken


@pytest.mark.parametrize("wrap", [published, pulled])
def test_messages_of_ams(pki: Pki, wrap: object) -> None:
    assert callable(wrap)
    found = list(inspect_content("body", wrap(signer(pki.client).sign(SYNC), SYNC), NO_KEYS, NOW))
    assert [one.label for one in found] == ["body: message 1", "body: message 2"]
    assert [[layer.kind for layer in one.layers] for one in found] == [["ams", "signed"], ["ams"]]
    assert all(one.inspection.taken for one in found)
    assert found[0].layers[0].attributes


def test_one_message_out_of_ams_by_itself() -> None:
    message = {"attributes": {"empaid": "a/1"}, "data": base64.b64encode(SYNC).decode()}
    for document in (message, {"ackId": "a:1", "message": message}):
        inspected = only(json.dumps(document).encode())
        assert inspected.inspection.taken
        assert [(layer.kind, layer.attributes) for layer in inspected.layers] == [("ams", {"empaid": "a/1"})]


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"{", "begins like JSON, and cannot be read as JSON (line 1, column 2)"),
        (b'{"a": 1}', "neither"),
        (b"[1]", "neither"),
        (b"[" * 100_000, "begins like JSON, and cannot be read as JSON"),
        (b'{"a":' * 100_000, "begins like JSON, and cannot be read as JSON"),
        (b'{"messages": [' + b"9" * 5000 + b"]}", "begins like JSON, and cannot be read as JSON"),
        (b'{"messages": [1]}', "without data"),
        (b'{"message": 1}', "without data"),
        (b'{"data": 1}', "without data"),
        (b'{"receivedMessages": [{"ackId": "a"}]}', "without data"),
        (b'{"messages": [{"data": "%%%"}]}', "not base64"),
        (b'{"messages": [{"data": "\xc3\xa9"}]}', "not base64"),
        (b'{"messages": [{"data": ""}]}', "it is empty"),
        (b"Content-Type: multipart/signed; boundary=b\n\n--b\n", "exactly two parts"),
        (b"Content-Type: text/plain\n\nhello", "not a detached signature"),
        (b"MIME-Version: 1.0\nContent-Type: application/pkcs7-mime\n\n!!", "--key"),
        (b"\x1f\x8b\x08", "ends too early"),
        (b"\x1f\x8bgarbage", "damaged compressed data"),
        (gzip.compress(SYNC)[:-9], "ends too early"),
        (b"\x7fELF" + bytes(100), "NUL"),
        (b"", "it is empty"),
    ],
)
def test_what_cannot_be_opened_says_why(content: bytes, rule: str) -> None:
    inspected = only(content)
    assert not inspected.inspection.taken
    assert rule in first_error(inspected)


def test_the_source_of_a_rule_is_a_service() -> None:
    assert {violation.source for violation in only(b"[site]").inspection.violations} == {"AMS"}


def test_an_empty_reply_of_ams_is_fine() -> None:
    inspected = only(b'{"receivedMessages": []}')
    assert inspected.inspection.taken
    assert inspected.inspection.title == "no messages"


def test_a_reply_of_too_many_messages() -> None:
    found = list(inspect_content("m", json.dumps({"messages": [{}] * (MOST_MESSAGES + 1)}).encode(), NO_KEYS, NOW))
    assert len(found) == MOST_MESSAGES + 1
    assert "were inspected" in first_error(found[-1])


def test_a_compression_bomb_is_not_unpacked() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(MAX_BYTES // 2**20 + 1)) + packer.flush()
    assert len(bomb) < 2**20
    assert "when decompressed; it was not inspected" in first_error(only(bomb))
    assert "when decompressed; it was not inspected" in first_error(only(gzip.compress(bomb)))


def test_wrapped_too_often() -> None:
    content = SYNC
    for _ in range(MOST_LAYERS):
        content = gzip.compress(content)
    assert "wrapped more than" in first_error(only(content))


def test_too_large() -> None:
    assert "larger than" in first_error(only(bytes(MAX_BYTES + 1)))


@given(st.binary(max_size=200) | st.sampled_from([b"\x1f\x8b", b"{", b"Content-Type: "]).flatmap(
    lambda start: st.binary(max_size=200).map(lambda rest: start + rest)
))  # fmt: skip
def test_any_bytes_have_an_answer(content: bytes) -> None:
    for inspected in inspect_content("m", content, NO_KEYS, NOW):
        assert inspected.inspection.title


@given(st.integers(0, 2**31), st.binary(min_size=1, max_size=8))
def test_spoilt_signed_messages_have_an_answer(at: int, patch: bytes) -> None:
    content = bytearray(_signed())
    at %= len(content)
    content[at : at + len(patch)] = patch
    for inspected in inspect_content("m", bytes(content), NO_KEYS, NOW):
        assert inspected.inspection.title


@cache
def _signed() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return signer(make_pki(Path(folder) / "pki").client).sign(SYNC)


def test_files_folders_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queue" / "0a").mkdir(parents=True)
    (tmp_path / "queue" / "0a" / "two").write_bytes(gzip.compress(SYNC))
    (tmp_path / "queue" / "0a" / "one").write_bytes(SYNC)
    (tmp_path / "queue" / "0a" / "link").symlink_to("one")
    os.mkfifo(tmp_path / "queue" / "pipe")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SYNC)))
    found = list(inspect_files([tmp_path / "queue", Path("-")], NO_KEYS, NOW))
    assert [one.label.removeprefix(str(tmp_path)) for one in found] == [
        "/queue/pipe", "/queue/0a/one", "/queue/0a/two", "standard input",
    ]  # fmt: skip
    assert [one.inspection.taken for one in found] == [False, True, True, True]
    assert first_error(found[0]) == "not a regular file"


def test_a_path_where_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(SYNC)
    with pytest.raises(UsageError, match="does not exist"):
        next(inspect_files([tmp_path / "there", tmp_path / "gone"], NO_KEYS, NOW))


def test_keys_that_cannot_be_used(pki: Pki, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="go together"):
        load_keys(pki.client.certificate, None, None)
    elliptic = pki.issue("elliptic", "elliptic", key="ec")
    with pytest.raises(CredentialError, match="not an RSA key"):
        load_keys(elliptic.certificate, elliptic.key, None)
    with pytest.raises(CredentialError, match="has no certificates"):
        load_keys(None, None, tmp_path)
