"""A bit of the store that changed on its disk never alters what is sent: the record is held, or the run says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.publisher.store.flipped_bits import FlippedStore

_SHORT = 40
_LONG = 20_000


def _wrong(folder: Path, number: int, seed: int) -> list[str]:
    store = FlippedStore(folder)
    assert store.expected.code == 0
    assert all(store.expected.bodies.values())
    found = ((flip, store.why_wrong(store.sent(flip))) for flip in store.flips(number, seed))
    return [f"{flip}: {wrong}" for flip, wrong in found if wrong is not None]


def test_no_changed_bit_alters_what_is_sent(tmp_path: Path) -> None:
    assert not _wrong(tmp_path, _SHORT, 24)


@pytest.mark.long
def test_no_changed_bit_anywhere_alters_what_is_sent(tmp_path: Path) -> None:
    assert not _wrong(tmp_path, _LONG, 25)
