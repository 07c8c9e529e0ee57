"""A token goes to the evidence on the target's own host, and to no other host."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from publisher.config.targets import HttpsSettings
from publisher.errors import CredentialError
from publisher.reconcile.configured_evidence import configured_evidence
from publisher.simulator.pki import Pki
from tests.publisher.scripted_server import serve
from tests.publisher.targets.scripted_targets import always, context

TOKEN = "aaaa.bbbb.cccc"


def settings_of(folder: Path, url: str, evidence: str) -> HttpsSettings:
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    return HttpsSettings.model_validate(
        {"type": "https", "url": url, "token_file": str(token), "evidence": evidence, "timeout": 10}
    )


def test_evidence_at_the_service_gets_its_token_and_another_host_does_not(pki: Pki, tmp_path: Path) -> None:
    rows = b"record_id\na\n"
    with serve(always(200, rows), pki) as service, serve(always(200, rows), pki) as other:
        at_service = settings_of(tmp_path, f"{service.url}/usage", f"{service.url}/export.csv")
        elsewhere = settings_of(tmp_path, f"{service.url}/usage", f"{other.url}/export.csv")
        assert urlsplit(service.url).port != urlsplit(other.url).port
        for settings in (at_service, elsewhere):
            with configured_evidence(settings, context(pki)) as (path,):
                assert path.read_bytes() == rows
    assert [each.headers.get("authorization") for each in service.requests] == [f"Bearer {TOKEN}"]
    assert [each.headers.get("authorization") for each in other.requests] == [None]


@pytest.mark.parametrize(("at_service", "who"), [(True, "the target's token"), (False, "the target's certificate")])
def test_a_refusal_says_who_was_refused_and_shows_no_token(
    pki: Pki, tmp_path: Path, at_service: bool, who: str
) -> None:
    with serve(always(403, f"no {TOKEN}".encode()), pki) as service, serve(always(403, b"no"), pki) as other:
        evidence = f"{(service if at_service else other).url}/export.csv"
        settings = settings_of(tmp_path, f"{service.url}/usage", evidence)
        with pytest.raises(CredentialError) as caught, configured_evidence(settings, context(pki)):
            pass
    assert who in caught.value.hint
    assert TOKEN not in str(caught.value)
