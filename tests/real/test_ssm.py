"""SSM's receiver takes what we sign and encrypt, names us as we do, and refuses what was altered."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest

from publisher.security.credentials import load_credentials
from publisher.security.distinguished_name import slash_dn
from publisher.security.sign import Signer, load_recipient
from publisher.simulator.pki import Pki, make_pki
from tests.real.programs import RealProgram

PAYLOADS: Final = ("one line\n", "a\nb: x\n%%\n" * 400, "no line feed at the end", "From here\n.\n--x\n=3D trailing \n")


@pytest.fixture(scope="module")
def ssm() -> RealProgram:
    return RealProgram("ssm")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.mark.parametrize("key", ["rsa", "ec"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_messages_are_taken(ssm: RealProgram, pki: Pki, tmp_path: Path, key: str, encrypted: bool) -> None:
    ours = pki.client if key == "rsa" else pki.issue("ec", "ec.example.org", key="ec")
    receiver = pki.issue("receiver", "receiver.example.org")
    credentials = load_credentials(ours.certificate, ours.key, now_s=time.time())
    recipient = load_recipient(receiver.certificate, now_s=time.time()) if encrypted else None
    signed = [Signer(credentials, recipient=recipient).sign(text.encode()).decode() for text in PAYLOADS]
    altered = [] if encrypted else [signed[1].replace("b: x", "b: y", 1)]
    given = {
        "messages": [*signed, *altered],
        "authorities": str(pki.ca_directory),
        "certificate": str(receiver.certificate),
        "key": str(receiver.key),
    }
    found = ssm.read("ssm_verify", given)
    payloads = [each["payload"].rstrip() for each in found[: len(signed)]]
    assert payloads == [text.rstrip() for text in PAYLOADS], "SSM cuts blanks at the end"
    assert {each["sender"] for each in found[: len(signed)]} == {slash_dn(credentials.certificate.subject)}
    assert all("error" in each for each in found[len(signed) :])
    ssm.compared(f"{'encrypted' if encrypted else 'signed'} messages, {key}", len(found))
