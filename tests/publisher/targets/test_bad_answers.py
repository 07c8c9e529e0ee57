"""What each kind of target makes of a refused identity, an answer of another program, and an endless one, and says."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from publisher.config.target_registry import TARGET_KINDS
from publisher.simulator.pki import Pki
from publisher.targets.base import Message
from tests.publisher.scripted_server import ScriptedConnection, ScriptedRequest
from tests.publisher.targets.scripted_targets import MESSAGE, always, outcome_of

REPORT = (
    b'[{"account":"a","month":"2026-11","components":[{"type":"cpu_k_hours","amount":"1.00"}]}]',
    "waldur-usage",
)
KINDS: dict[str, tuple[dict[str, Any], Message]] = {
    "sgas": ({}, MESSAGE),
    "ams": ({}, MESSAGE),
    "https": ({"token_file": "token"}, MESSAGE),
    "auditor": ({}, Message("b", "auditor-record", "application/json", b"[]\n", ("a",))),
    "waldur": (
        {"offering": "0" * 32, "credentials": {"token_file": "token"}},
        Message("b", REPORT[1], "application/json", REPORT[0], ("a",)),
    ),
}


def endless(_request: ScriptedRequest, connection: ScriptedConnection) -> None:
    """100 MB."""
    with contextlib.suppress(OSError):
        connection.answer(200, b"{", length=100_000_000)
        for _ in range(1_526):
            connection.sock.sendall(b" " * 65_536)
    connection.cut()


SCRIPTS = {"expired": always(401, b'{"detail":"Token has expired"}'), "page": always(200, b"<title>Log in</title>")}
CASES = [
    (
        "sgas",
        "expired",
        "Unauthorised",
        'HTTP 401: {"detail":"Token has expired"}. The service must know our certificate',
    ),
    ("ams", "expired", "Unauthorised", 'no token for our certificate: HTTP 401: {"detail":"Token has expired"}'),
    ("https", "expired", "Unauthorised", 'HTTP 401: {"detail":"Token has expired"}. The service must accept our token'),
    ("auditor", "expired", "Unauthorised", "The service must know our certificate"),
    (
        "waldur",
        "expired",
        "Unauthorised",
        'HTTP 401: {"detail":"Token has expired"}. The service must accept our token',
    ),
    ("sgas", "page", "Unknown", "the answer does not name the records that were sent: HTTP 200: Log in"),
    ("ams", "page", "Transient", "the answer has no token: HTTP 200: Log in. Check `auth_url`"),
    ("https", "page", "Accepted", "HTTP 200: Log in"),  # any 2xx is acceptance: the answer is the receipt
    ("auditor", "page", "Unknown", "not an answer of AUDITOR: HTTP 200: Log in. Check the URL"),
    ("waldur", "page", "Transient", "the answer is not the JSON that Waldur gives"),
    ("sgas", "endless", "Unknown", "the answer has more than 16 MiB"),
    ("ams", "endless", "Transient", "token: the answer has more than 16 MiB"),
    ("https", "endless", "Unknown", "the answer has more than 16 MiB. Check what answers at the URL"),
    ("auditor", "endless", "Unknown", "the answer has more than 16 MiB"),
    ("waldur", "endless", "Transient", "the answer has more than 16 MiB"),
]


def test_every_kind_with_a_service_is_looked_at() -> None:
    assert KINDS.keys() == TARGET_KINDS.keys() - {"directory"}
    assert len(CASES) == 3 * len(KINDS)


@pytest.mark.every_case
@pytest.mark.parametrize(("kind", "case", "outcome", "words"), CASES)
def test_a_bad_answer_is_explained(pki: Pki, tmp_path: Path, kind: str, case: str, outcome: str, words: str) -> None:
    token = tmp_path / "token"
    token.write_text("aaaa.bbbb.cccc")
    token.chmod(0o600)
    settings, message = KINDS[kind]
    found = outcome_of(pki, kind, SCRIPTS.get(case, endless), message, **_with(settings, token))
    assert type(found).__name__ == outcome
    said = getattr(found, "answer", "") or getattr(found, "receipt", {}).get("status", "")
    assert words in said
    assert "aaaa.bbbb" not in said


def _with(settings: Any, token: Path) -> Any:
    if isinstance(settings, dict):
        return {key: _with(value, token) for key, value in settings.items()}
    return str(token) if settings == "token" else settings
