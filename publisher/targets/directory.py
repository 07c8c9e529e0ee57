"""A directory as target: an outgoing queue of SSM (`dirq`), plain files (`files`), or files by day (`daily`, see
`publisher.targets.daily_files`).

A message is there whole or not at all: it is written under a temporary name, synced and renamed. Sending a batch again
replaces its file. In the first two layouts the name comes from the batch id:

* `files`: BATCH.txt, .xml, .json, .csv, or .eml where it is signed;
* `dirq`: DIRECTORY/ELEMENT of 8 and 14 hexadecimal digits, as python-dirq's QueueSimple has them. The element's name is
  a digest of the batch id; its directory is numbered by the clock, after all that are there, so that SSM takes messages
  in the order in which they were written, also one that is written again: of two summaries of a month, APEL keeps the
  last. SSM signs a message,
  encrypts it if it is configured to, and puts it into the JSON of its broker: what the broker gets is what is bounded.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterator

from formats.base import FILE_SUFFIXES
from publisher.config.directory import DirectorySettings
from publisher.errors import TargetError
from publisher.finding import Finding
from publisher.targets import answers
from publisher.targets.ams import MOST_BODY_BYTES, body_size_bound
from publisher.targets.base import Accepted, KeptMessage, Message, Outcome, Oversized, Transient, Unauthorised
from publisher.targets.daily_files import DailyFiles
from publisher.targets.identity import Identity, TargetContext, largest_payload
from publisher.targets.message_files import (
    elements,
    exists,
    made,
    messages_of,
    opened,
    read_message,
    write,
    write_element,
)

_SSM_SIGNATURE_BYTES = 8192
"""At least what SSM's signature adds: certificate, signature with a key of 4096 bits, in base64, and headers."""

_SSM_ENVELOPE_BYTES = 4096
"""An upper bound of what its encryption adds, before the whole is encoded in base64."""

_SSM_LINE_BYTES, _SSM_LINE_CHARACTERS = 48, 65
"""A line of base64 as OpenSSL writes it: bytes in it, and characters with the line end."""

_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LOCAL_ERRORS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EEXIST}
)


class DirectoryTarget:
    """One directory on this host."""

    kind = "directory"

    def __init__(self, name: str, settings: DirectorySettings, context: TargetContext) -> None:
        """The directory is made when it is first written to; its parent must exist."""
        self.name = name
        self._path = settings.path
        self._queue = settings.layout == "dirq"
        self._daily = DailyFiles(settings.format) if settings.by_day else None
        self.taken_away = self._queue or self._daily is not None
        self._signs = settings.sign
        self._limit_bytes = settings.batch_bytes
        self._identity = Identity(settings.credentials, context)

    def payload_limit_bytes(self) -> int | None:
        """The configured size, less the signature, if there is one, and in a queue of SSM less what SSM adds.

        Raises `CredentialError` if messages cannot be signed.
        """
        written: Callable[[int], int] = self._identity.signer().size_bound if self._signs else int
        if not self._queue:
            return largest_payload(self._limit_bytes, written)
        most = min(self._limit_bytes, MOST_BODY_BYTES)
        return largest_payload(most, lambda size: ssm_size_bound(written(size)))

    def post(self, message: Message) -> Outcome:
        """Write the message. See `publisher.targets.base.Target.post`."""
        if self._identity.has_expired():
            self.close()
        content = self._identity.signer().sign(message.payload) if self._signs else message.payload
        if self._queue and ssm_size_bound(len(content)) > MOST_BODY_BYTES:
            answer = f"{ssm_size_bound(len(content))} bytes as SSM may send it, of {MOST_BODY_BYTES} allowed"
            return Oversized(answer, measured=True)
        try:
            with made(self._path) as descriptor:
                if self._daily is not None:
                    return Accepted(self._daily.write(descriptor, message))
                if self._queue:
                    name = write_element(descriptor, message.batch_id, content, int(self._identity.clock()))
                else:
                    name = _file_name(message, signed=self._signs)
                    write(descriptor, name, content)
        except OSError as error:
            answer = f"cannot write to {self._path}: {error.strerror or error}"
            return Unauthorised(answer, misdirected=True) if error.errno in _LOCAL_ERRORS else Transient(answer)
        return Accepted(receipt={"file": name})

    def kept(self) -> Iterator[KeptMessage]:
        """The messages that are present, oldest first. Raises `TargetError` if the directory cannot be read.

        Without unfinished files and anything but regular files.
        """
        try:
            with opened(self._path) as descriptor:
                for name in elements(descriptor) if self._queue else messages_of(descriptor):
                    yield KeptMessage(name, read_message(descriptor, name))
        except FileNotFoundError:
            return
        except OSError as error:
            hint = f"Make {self._path} readable for the user that runs this program"
            raise TargetError(f"{self.name}: {self._path}: {error.strerror or error}", hint=hint) from error

    def keeps(self, name: str) -> bool:
        """Whether the file is present. Raises `TargetError` as `kept` does."""
        try:
            with opened(self._path) as descriptor:
                return exists(descriptor, name)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise TargetError(f"{self.name}: {self._path}: {error.strerror or error}") from error

    def check(self) -> list[Finding]:
        """Writes a file, and removes it; a directory that is not there is not made.

        It would belong to the user who tests, such as root, and the one that runs this program could not write there.
        """
        findings = answers.certificate(self.name, self._identity) if self._signs else []
        subject = f"{self.name}: directory"
        if not os.path.lexists(self._path) and os.access(self._path.parent, os.W_OK | os.X_OK):
            return [*findings, Finding(subject, "green", f"{self._path} is made when it is first written to")]
        try:
            with opened(self._path) as descriptor:
                write(descriptor, ".usage-publisher-check", b"")
                os.unlink(".usage-publisher-check", dir_fd=descriptor)
        except OSError as error:
            hint = f"Make {self._path} writable for the user that runs this program"
            return [*findings, Finding(subject, "red", f"{self._path}: {error.strerror or error}", hint)]
        return [*findings, Finding(subject, "green", f"{self._path} can be written")]

    def close(self) -> None:
        """Forget the credentials."""
        self._identity.forget()


def ssm_size_bound(message_bytes: int) -> int:
    """The maximum number of bytes that the broker gets of a message of this size: signed, encrypted, in base64, in
    JSON.

    SSM's own configuration says whether it encrypts, so it is assumed that it does.
    """
    encrypted = message_bytes + _SSM_SIGNATURE_BYTES + _SSM_ENVELOPE_BYTES
    return body_size_bound(-(-encrypted // _SSM_LINE_BYTES) * _SSM_LINE_CHARACTERS)


def _file_name(message: Message, *, signed: bool) -> str:
    """A name from the batch id that no other batch has."""
    safe = _NOT_IN_NAME.sub("-", message.batch_id)[:100]
    if safe != message.batch_id:
        safe = f"{safe}-{hashlib.sha256(message.batch_id.encode()).hexdigest()[:16]}"
    content_type = message.content_type.partition(";")[0].strip().lower()
    return safe + (".eml" if signed else FILE_SUFFIXES.get(content_type, ".dat"))
