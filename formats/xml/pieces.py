"""Cut UR and CAR messages into their records, many times as fast as they are parsed: to be compared byte by byte."""

from __future__ import annotations

import re
from typing import Final

from formats.base import Piece

_RECORD: Final = re.compile(rb"<(?:\w+:)?(?:Job)?UsageRecord[ >].*?</(?:\w+:)?(?:Job)?UsageRecord>", re.DOTALL)
_RECORD_ID: Final = re.compile(rb'recordId="([^"]*)"')


def pieces(payload: bytes) -> list[Piece]:
    """The records of a message of ours, in order. Of another one it may be anything."""
    found_pieces = []
    for body in _RECORD.findall(payload):
        record_id = _RECORD_ID.search(body)
        found_pieces.append(Piece("" if record_id is None else record_id[1].decode("ascii", "replace"), body))
    return found_pieces
