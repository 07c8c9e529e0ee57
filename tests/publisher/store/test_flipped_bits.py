"""A bit of the store that changed on its disk never alters what is sent: the record is held, or the run says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.publisher.store.flipped_bits import FlippedStore

_SHORT = 40
_LONG, _PARTS = 20_000, 50


def _wrong(folder: Path, number: int, seed: int, *, read_again: bool = False) -> list[str]:
    store = FlippedStore(folder)
    assert store.expected.code == 0
    assert all(store.expected.bodies.values())
    found = ((flip, store.why_wrong(store.sent(flip, read_again=read_again))) for flip in store.flips(number, seed))
    return [f"{flip}: {wrong}" for flip, wrong in found if wrong is not None]


def test_no_changed_bit_alters_what_is_sent(tmp_path: Path) -> None:
    assert not _wrong(tmp_path, _SHORT, 24)


def test_no_changed_bit_doubles_a_job_that_is_read_again(tmp_path: Path) -> None:
    assert not _wrong(tmp_path, _SHORT, 26, read_again=True)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("read_again", [False, True])
def test_no_changed_bit_anywhere_alters_what_is_sent(tmp_path: Path, part: int, read_again: bool) -> None:
    assert not _wrong(tmp_path, _LONG // _PARTS, 1000 + part, read_again=read_again)
