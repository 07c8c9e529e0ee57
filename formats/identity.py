"""Record id, stored encoding, and content digest of a run, by which sending again is harmless.

A record id is a pure function of the run. The digest is a function of every fact of the run that may be published and
of nothing else, so an unchanged run that is read again is recognised, even if its source has another name in the
configuration. The digest omits core numbers, which only reports use.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from formats.job import Job

ENCODING_VERSION: Final = 1
"""First byte of every stored job. Increase it when a field changes its meaning or type, not when one is added."""

DIGEST_BYTES: Final = 16
MOST_KEY_BYTES: Final = 1_000
"""The longest text in an index of the store. PostgreSQL accepts 2,704 bytes in all; SGAS accepts ids of 1,000
characters."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(Job)
_blake2b = hashlib.blake2b
_VERSION_BYTE = bytes([ENCODING_VERSION])
_NIL: Final = b"\xc0"
HEAD_BYTES: Final = 4
"""Bytes of the stored form before the first field: the version, and the head of an array of more than 15 items."""


class UnknownEncodingError(ValueError):
    """A stored job has an unknown encoding version: the store is newer than the program."""

    def __init__(self, version: int) -> None:
        super().__init__(f"it has encoding {version}, which this program does not know")
        self.version = version


def encode(job: Job) -> bytes:
    """The stored form of a job: a version byte, and an array of its fields in MessagePack, mappings in sorted order."""
    return _VERSION_BYTE + _encoder.encode(job)


def decode(stored: bytes) -> Job:
    """The job of a stored form.

    Raises `UnknownEncodingError` for a version of a later program, `msgspec.DecodeError` or `msgspec.ValidationError`
    for bytes that are not a stored job.
    """
    if not stored:
        raise msgspec.DecodeError("a stored job has no bytes")
    if stored[0] != ENCODING_VERSION:
        raise UnknownEncodingError(stored[0])
    return _decoder.decode(memoryview(stored)[1:])


def digest(job: Job, encoded: bytes | None = None) -> bytes:
    """Content digest (16 bytes) of a run: of its encoded form without core numbers. `encoded`: the form with them."""
    if job.core_numbers:
        encoded = encode(msgspec.structs.replace(job, core_numbers=()))
    return encoded_digest(encoded or encode(job))


def encoded_digest(encoded: bytes) -> bytes:
    """The digest of an encoded job: of its fields, without the number of them and without the nils at the end.

    A field that a later version adds, with the default None, changes neither. Two different jobs do not become the same
    bytes: what is left is decoded field by field, with nil for every field after its end, and this gives the job. So
    it does if the last bytes of the last field equal nil and are removed too.
    """
    return packed_digest(encoded[HEAD_BYTES:])


def packed_digest(fields: bytes) -> bytes:
    """The same, of the fields of an encoded job one after another."""
    return _blake2b(fields.rstrip(_NIL), digest_size=DIGEST_BYTES).digest()


def index_key(text: str) -> str:
    """A text as an index of the store has it: unchanged or, if longer than `MOST_KEY_BYTES`, its beginning and its
    digest.

    Two texts never have the same key, and the key of a key is the key.
    """
    if len(text) * 4 <= MOST_KEY_BYTES:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= MOST_KEY_BYTES:
        return text
    return f"{raw[:200].decode('utf-8', 'ignore')}~{hashlib.blake2b(raw).hexdigest()}"


def record_key(record_id: str) -> str:
    """A record id as it is stored and sent: as `index_key`, with `%00` for NUL, which PostgreSQL cannot store.

    This does not change what receivers get: messages escape NUL in the same way, and a record with a longer id is held.
    """
    return index_key(record_id.replace("\0", "%00") if "\0" in record_id else record_id)


def arc_record_id(endpoint_url: str, job_id: str) -> str:
    """ARC's record id, `ur-<host of the endpoint>-<job id>`, which SGAS services already have (facts on ARC)."""
    return f"ur-{endpoint_host(endpoint_url)}-{job_id}"


def endpoint_host(endpoint_url: str) -> str:
    """Host of an endpoint URL, without port, brackets, or user; text without a scheme is a host with a path."""
    if "://" not in endpoint_url:
        endpoint_url = f"//{endpoint_url.lstrip('/')}"
    try:
        return urlsplit(endpoint_url).hostname or ""
    except ValueError:
        return ""


def run_record_id(system: str, cluster: str, local_id: str, start: int | None, part: str = "") -> str:
    """Record id of a run of a batch system: system, cluster, job (with array index), start of the run.

    The start distinguishes the runs of a requeued job; `part` is anything else that a source needs for this (a PE task,
    a het component). Characters outside `[A-Za-z0-9._@:+-]` are written as `%XX` of their UTF-8 bytes, so that an id is
    a token in every format and two ids are never the same.
    """
    at = 0 if start is None else start
    if not part and _ALL_SAFE.fullmatch(f"{system}{cluster}{local_id}{at}"):  # nearly always; of every run that is read
        return f"ur-{system}/{cluster}/{local_id}/{at}"
    words = (system, cluster, local_id, part, str(at)) if part else (system, cluster, local_id, str(at))
    return "ur-" + "/".join(map(_token, words))


_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@:+-")
_ALL_SAFE = re.compile(r"[A-Za-z0-9._@:+-]*", re.ASCII)


def _token(word: str) -> str:
    raw = word.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in raw)
