"""The smallest messages that can be configured have room for a record, whatever is added to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from publisher.config import schema
from publisher.config.file import parse
from publisher.config.target_registry import TARGET_KINDS
from publisher.errors import ConfigError, TargetError
from publisher.simulator.pki import Pki
from publisher.targets import make_target
from publisher.targets.identity import TargetContext
from publisher.targets.plugin import added_target
from tests.publisher.receivers import RecordReceiver

SETTINGS: dict[str, tuple[dict[str, Any], int]] = {
    "sgas": ({"url": "https://localhost"}, 10_000),
    "ams": ({"url": "https://localhost"}, 20_000),
    "ams, encrypted": ({"url": "https://localhost", "encrypt_to": "receiver.pem"}, 30_000),
    "https": ({"url": "https://localhost"}, 10_000),
    "https, signed": ({"url": "https://localhost", "sign": True}, 20_000),
    "https, encrypted": ({"url": "https://localhost", "encrypt_to": "receiver.pem"}, 20_000),
    "directory": ({"path": "out"}, 40_000),
    "directory, signed": ({"path": "out", "sign": True}, 60_000),
    "directory, files": ({"path": "out", "layout": "files"}, 10_000),
    "directory, signed files": ({"path": "out", "layout": "files", "sign": True}, 20_000),
    "auditor": ({"url": "https://localhost"}, 10_000),
    "waldur": ({"url": "https://localhost", "offering": "0" * 32}, 10_000),
}
"""Of each kind and what it adds to a payload: the settings, and the least `batch_bytes`."""


def settings_of(folder: Path, case: str, batch_bytes: int) -> Any:
    table = {"type": case.partition(",")[0], "batch_bytes": batch_bytes, **SETTINGS[case][0]}
    document = {
        "site": {"name": "EXAMPLE-SITE"},
        "store": {"url": "sqlite:///store.db"},
        "sources": {"ce1": {"type": "arc", "path": "x"}},
        "targets": {"it": table},
    }
    return parse(document, folder / "publisher.toml").targets["it"]


def test_every_kind_is_looked_at() -> None:
    assert {case.partition(",")[0] for case in SETTINGS} == TARGET_KINDS.keys()


@pytest.mark.parametrize("case", SETTINGS)
def test_the_smallest_message_has_room_for_a_record(tmp_path: Path, pki: Pki, case: str) -> None:
    (tmp_path / "receiver.pem").write_bytes(pki.client.certificate.read_bytes())
    least = SETTINGS[case][1]
    own = schema.Credentials(certificate=pki.client.certificate, key=pki.client.key)
    made = make_target("it", settings_of(tmp_path, case, least), TargetContext(own))
    limit = made.payload_limit_bytes()
    made.close()
    assert limit is None or limit >= 5_000
    with pytest.raises(ConfigError, match=r"targets\.it\.batch_bytes: must be (at least|.* or more)"):
        settings_of(tmp_path, case, least - 1)


def test_an_add_on_without_room_is_named() -> None:
    kind = TARGET_KINDS["https"]
    made = added_target(
        type(kind)(name="mine", settings=object, factory=lambda *_: RecordReceiver("mine", limit_bytes=0)),
        "mine",
        None,
        TargetContext(),
    )
    with pytest.raises(TargetError, match="its limit of a payload is 0 bytes, in which no record fits"):
        made.payload_limit_bytes()
