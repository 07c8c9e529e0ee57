"""Validation of rendered messages."""

from __future__ import annotations

import pytest

from formats.registry import record_format
from formats.view import View
from publisher.errors import UsageError
from publisher.preview.render import Broken, RenderedMessage, Validation
from tests.formats.golden_jobs import ARC, CREATED


def rendered(name: str) -> bytes:
    renderer = record_format(name, View(site="EXAMPLE-SITE"))
    return renderer.message([renderer.record(ARC, CREATED).body])


def message(name: str, payload: bytes) -> RenderedMessage:
    return RenderedMessage("u", name, payload, 1)


@pytest.mark.parametrize("name", ["ogf-ur", "emi-car", "apel-job"])
def test_what_we_render_is_valid(name: str) -> None:
    validation = Validation(CREATED)
    assert validation.passes(message(name, rendered(name)))
    assert not validation.broken


def test_broken_rules_name_message_and_record() -> None:
    validation = Validation(CREATED)
    payload = rendered("ogf-ur")
    assert validation.passes(message("ogf-ur", payload))
    assert not validation.passes(message("ogf-ur", payload.replace(b"<NodeCount>2", b"<NodeCount>70000")))
    assert validation.broken == [
        Broken(2, ARC.record_id, "NodeCount", "70000 is not in -32768..32767", "SGAS column, 16 bits"),
    ]
    assert not validation.passes(message("ogf-ur", payload.replace(b"<Status>completed</Status>", b"")))
    assert {(one.message, one.record) for one in validation.broken[1:]} == {(3, ARC.record_id)}


def test_a_format_without_rules() -> None:
    with pytest.raises(UsageError, match="example-json cannot be validated"):
        Validation(CREATED).passes(message("example-json", b"{}"))
