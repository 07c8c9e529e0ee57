"""Jobs as stored, read back: what a later program stored, or what is damaged, is an error of the store.

Keeps the promise that nothing is guessed: a record that this program cannot read whole is not read in part.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from formats import identity
from formats.job import Job
from publisher.errors import StoreCorruptError, StoreNewerError


def decode(stored: bytes) -> Job:
    """The job of its stored form. Raises `StoreNewerError` and `StoreCorruptError`."""
    try:
        return identity.decode(stored)
    except identity.UnknownEncodingError as error:
        raise StoreNewerError(
            f"the store holds records of a later version of this program: {error}",
            hint="Install that version again; nothing was changed",
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorruptError(
            f"the store holds a record that cannot be read: {error}",
            hint="Restore the store from a backup; keep the damaged file for study",
        ) from error


class Names(msgspec.Struct, frozen=True, gc=False):
    """What a job is called."""

    local_id: str | None = None
    name: str | None = None
    global_id: str | None = None


_VERSION: Final = bytes([identity.ENCODING_VERSION])
_NAMES: Final = msgspec.msgpack.Decoder(Names)


def names(stored: bytes) -> Names:
    """What a job is called, of its stored form: the rest of it is not looked at. Raises as `decode`."""
    if stored[:1] == _VERSION:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # `decode` says what is wrong
            return _NAMES.decode(memoryview(stored)[1:])
    job = decode(stored)
    return Names(job.local_id, job.name, job.global_id)
