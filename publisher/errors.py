"""Every error of the publisher, with its exit code and whether trying again helps.

    PublisherError                      1
    ├── UsageError                      2  the command line asks for something that is not there
    │   ├── ConfigError                 2  publisher.toml: names file, key and the values allowed
    │   └── MissingExtraError           2  a library is not installed that comes with an extra
    ├── OutputError                     2  standard output, or a file to be made, cannot be written
    ├── StoreError                      5  the store cannot be used; nothing is sent
    │   ├── StoreMissingError           5  there is none yet
    │   ├── StoreNewerError             5  its version is unknown to this program
    │   ├── StoreBusyError              5  locked by another process for too long
    │   ├── StoreFullError              5  no space to write state: a run that cannot write its state sends nothing
    │   ├── StoreCorruptError           5
    │   └── StoreRestoredError          5  it may not know of all that was sent: a backup was put in its place
    ├── CredentialError                 4  certificate or key unusable here, or refused there
    │   └── SigningError                4  a message could not be signed, so it was not sent
    ├── SourceError                     1  a source could not be read
    │   ├── SourceMissingError          1
    │   ├── SourceBusyError             1  locked by its writer for too long
    │   └── SourceFormatError           1  not, or no longer, the format it should be
    ├── TargetError                     1  a service could not be reached or used
    │   ├── UnreachableError            1  name, port, route, time-out
    │   ├── UntrustedServerError        1  the server's certificate is not trusted by the CAs configured
    │   └── ProtocolError               1  an answer that the protocol does not have
    ├── TargetBusyError                 1  another run is at work for the target
    └── StoppedError                    1  told to stop before the end

The exit code of a run over several sources and targets is decided in `publisher.cli`, from all that happened.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

from publisher.text import utf8


class PublisherError(Exception):
    """Anything that stops a command or a part of it. `hint` says what to do now."""

    exit_code: ClassVar[int] = 1
    retry_helps: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = utf8(message)
        super().__init__(self.message)
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        stop = "" if self.message.endswith((".", "?", "!")) else "."
        return f"{self.message}{stop} {self.hint}"


class UsageError(PublisherError):
    """The command line asks for something that is not there or makes no sense."""

    exit_code = 2


class ConfigError(UsageError):
    """The configuration cannot be used: names the file, the key and what is allowed there."""

    def __init__(self, message: str, *, file: Path | None = None, key: str = "", hint: str = "") -> None:
        where = ": ".join(str(part) for part in (file, key) if part)
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.file = file
        self.key = key


EXTRAS: Final = {
    "numpy": "reports",
    "pyarrow": "reports",
    "duckdb": "reports",
    "matplotlib": "reports",
    "fpdf": "reports",
    "jinja2": "reports",
    "starlette": "web",
    "uvicorn": "web",
    "psycopg": "postgresql",
    "distributed": "dask",
}
"""The libraries that the base install lacks, by the name under which they are imported, and the extra that has each."""


class MissingExtraError(UsageError):
    """A library is not installed that comes with an extra."""

    def __init__(self, library: str) -> None:
        """`library`: one of `EXTRAS`."""
        super().__init__(
            f"this needs {library}, which is not installed",
            hint=f"Install the package usage-publisher-extras, or: pip install 'usage-publisher[{EXTRAS[library]}]'",
        )

    @classmethod
    def of(cls, error: ImportError) -> MissingExtraError | None:
        """What is to be reported of a failed import; None where the module is of no extra."""
        library = (error.name or "").partition(".")[0]
        return cls(library) if library in EXTRAS and isinstance(error, ModuleNotFoundError) else None


class OutputError(PublisherError):
    """Standard output, or a file that was asked for, cannot be written."""

    exit_code = 2


class StoreError(PublisherError):
    """The store cannot be read or written. A run that cannot write its state sends nothing."""

    exit_code = 5


class StoreMissingError(StoreError):
    """There is no store yet; collecting makes it."""


class StoreNewerError(StoreError):
    """The store, or a record in it, has a version that this program does not know."""


class StoreBusyError(StoreError):
    """Another process held the store for longer than the time-out."""

    retry_helps = True


class StoreUnreachableError(StoreError):
    """The server of the store does not answer, or the connection to it was lost."""

    retry_helps = True


class StoreFullError(StoreError):
    """There is no space to write the state."""

    retry_helps = True


class StoreCorruptError(StoreError):
    """The store's file is damaged."""


class StoreRestoredError(StoreError):
    """The store may not know of all that was sent: a backup was put in its place. Nothing is sent."""


class CredentialError(PublisherError):
    """A certificate, key or token cannot be used, or was refused by a service."""

    exit_code = 4


class SigningError(CredentialError):
    """A message could not be signed or encrypted. It was not sent."""


class SourceError(PublisherError):
    """A source of jobs could not be read."""


class SourceMissingError(SourceError):
    """There is nothing at the path of a source."""

    retry_helps = True


class SourceBusyError(SourceError):
    """A source is locked by its writer for longer than the time-out."""

    retry_helps = True


class SourceFormatError(SourceError):
    """A source is not, or no longer, in the format it should be in."""


class TargetError(PublisherError):
    """A service could not be reached or used; what it should get waits."""

    retry_helps = True


class UnreachableError(TargetError):
    """No answer: the name does not resolve, the port is closed, there is no route, or time ran out."""


class UntrustedServerError(TargetError):
    """The server's certificate is not one that the configured certificate authorities vouch for."""

    retry_helps = False


class ProtocolError(TargetError):
    """The service gave an answer that its protocol does not have."""


class TargetBusyError(PublisherError):
    """Another run is at work for a target, so that what was asked for was not done."""

    retry_helps = True

    def __init__(self, target: str) -> None:
        super().__init__(f"another run is at work for target {target}", hint="Try again when it is done")


class StoppedError(PublisherError):
    """The program was told to stop before a command had come to its end."""

    retry_helps = True
