"""Every error of the publisher, with its exit code and whether trying again helps.

    PublisherError                      1
    ├── UsageError                      2  the command line names something that does not exist
    │   ├── ConfigError                 2  publisher.toml: names file, line, key, and the values allowed
    │   └── MissingExtraError           2  a library that an extra brings is not installed
    ├── OutputError                     2  standard output, or a file to be created, cannot be written
    ├── StoreError                      5  the store cannot be used; nothing is sent
    │   ├── StoreMissingError           5  no store was created yet
    │   ├── StoreNewerError             5  its version is unknown to this program
    │   ├── StoreBusyError              5  locked by another process for too long
    │   ├── StoreUnreachableError       5  its server does not answer, or the connection was lost
    │   ├── StoreFullError              5  no space to write state: a run that cannot write its state sends nothing
    │   ├── StoreCorruptError           5
    │   └── StoreRestoredError          5  restored from a backup: it may not know of all that was sent
    ├── CredentialError                 4  certificate or key unusable, or refused by the service
    │   └── SigningError                4  a message could not be signed, so it was not sent
    ├── SourceError                     1  a source could not be read
    │   ├── SourceMissingError          1
    │   ├── SourceBusyError             1  locked by its writer for too long
    │   └── SourceFormatError           1  not in the expected format, or no longer
    ├── TargetError                     1  a service could not be reached or used
    │   ├── UnreachableError            1  DNS, port, route, time-out, or TLS
    │   └── ProtocolError               1  an answer that the protocol does not define
    ├── TargetBusyError                 1  another run is sending to the target
    ├── ResourceLimitError              1  a limit of this host: open files, memory, or processes
    └── StoppedError                    1  interrupted before the end

`publisher.cli.exit_code` decides the exit code of a run over several sources and targets.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import ClassVar, Final

from publisher.text import utf8


class PublisherError(Exception):
    """An error that stops a command or a part of it. `hint` says what to do now."""

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

    @property
    def lines(self) -> list[str]:
        """The text as lines."""
        return [str(self)]


class UsageError(PublisherError):
    """The command line names something that does not exist, or its options contradict each other."""

    exit_code = 2


class ConfigError(UsageError):
    """The configuration cannot be used: names the file, its line, the key, and what is allowed there.

    `others`: further errors of the same file.
    """

    def __init__(
        self, message: str, *, file: Path | None = None, line: int | None = None, key: str = "", hint: str = ""
    ) -> None:
        place = f"{file}:{line}" if file is not None and line is not None else file
        where = ": ".join(str(part) for part in (place, key) if part)
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.file = file
        self.line = line
        self.key = key
        self.others: list[ConfigError] = []

    @property
    def lines(self) -> list[str]:
        """This error and the others of the same file, one line each."""
        return [str(self), *(str(other) for other in self.others)]


EXTRAS: Final = {
    "numpy": "reports",
    "pyarrow": "reports",
    "duckdb": "reports",
    "matplotlib": "reports",
    "plotext": "reports",
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
            hint="Install the package usage-publisher-extras, or in a checkout: pip install -c constraints.txt "
            f"'.[{EXTRAS[library]}]'",
        )

    @classmethod
    def of(cls, error: ImportError) -> MissingExtraError | None:
        """What is to be reported of a failed import; None where the module is of no extra."""
        library = (error.name or "").partition(".")[0]
        return cls(library) if library in EXTRAS and isinstance(error, ModuleNotFoundError) else None


_OF_LIMITS: Final = {
    errno.EMFILE: (
        "the limit of open files of this process is reached",
        "Raise it: LimitNOFILE= of the systemd unit, or `ulimit -n` of the shell",
    ),
    errno.ENFILE: ("the limit of open files of this host is reached", "Raise fs.file-max, or close other programs"),
    errno.ENOMEM: (
        "there is not enough memory",
        "Give it more: MemoryMax= of the systemd unit, `ulimit -v` of the shell, or memory of the host",
    ),
    errno.EAGAIN: (
        "no further thread or process can be started",
        "Raise the limit (TasksMax= of the systemd unit, `ulimit -u` of the shell), or give it more memory",
    ),
}
_NO_THREAD: Final = "can't start new thread"
_NO_MEMORY: Final = ("failed to map segment", "annot allocate memory")
"""What the linker says of a library for which there is no memory."""


class ResourceLimitError(PublisherError):
    """A limit of this host stopped the program: open files, memory, or processes. What was not sent waits."""

    retry_helps = True

    @classmethod
    def of(cls, error: BaseException) -> ResourceLimitError | None:
        """What is to be reported of a failure that a limit caused, at once or first; None for any other failure."""
        cause: BaseException | None = error
        while cause is not None:
            number = _limit_of(cause)
            if number is not None:
                what, hint = _OF_LIMITS[number]
                return cls(what, hint=f"{hint}. What was not sent waits for the next run")
            cause = cause.__cause__ or cause.__context__
        return None

    @classmethod
    def instead_of(cls, error: PublisherError) -> PublisherError:
        """The limit that caused an error, or the error. A certificate that cannot be read because of a limit is not
        a problem of credentials; a store that cannot be used remains one of the store."""
        return error if isinstance(error, StoreError) else cls.of(error) or error


def _limit_of(error: BaseException) -> int | None:
    """The `errno` of the limit that this exception reports; None for any other."""
    number = error.errno if isinstance(error, OSError) and not isinstance(error, BlockingIOError) else None
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and any(w in str(error) for w in _NO_MEMORY)):
        number = errno.ENOMEM
    elif isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        number = errno.EAGAIN
    return number if number in _OF_LIMITS else None


class OutputError(PublisherError):
    """Standard output, or a file that was asked for, cannot be written."""

    exit_code = 2


class StoreError(PublisherError):
    """The store cannot be read or written. A run that cannot write its state sends nothing."""

    exit_code = 5


class StoreMissingError(StoreError):
    """The store does not exist yet; collecting creates it."""


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
    """The store is damaged."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        """`hint`: by default, how to restore the store."""
        super().__init__(message, hint=hint or _RESTORE)


_RESTORE: Final = (
    "`usage-publisher store check` shows all damage. Restore the store from a backup (docs/how-to/lost-store.md), and "
    "keep the damaged one for study"
)


class StoreRestoredError(StoreError):
    """The store was restored from a backup and may not know of all that was sent. Nothing is sent."""


class CredentialError(PublisherError):
    """A certificate, key or token cannot be used, or was refused by a service."""

    exit_code = 4


class KeyMismatchError(CredentialError):
    """A private key is not that of the certificate."""


class SigningError(CredentialError):
    """A message could not be signed or encrypted. It was not sent."""


class SourceError(PublisherError):
    """A source of jobs could not be read."""


class SourceMissingError(SourceError):
    """The path of a source does not exist."""

    retry_helps = True


class SourceBusyError(SourceError):
    """The writer of a source locked it for longer than the time-out."""

    retry_helps = True


class SourceFormatError(SourceError):
    """A source is not in the expected format, or no longer."""


class TargetError(PublisherError):
    """A service could not be reached or used; what is due to it waits."""

    retry_helps = True


class UnreachableError(TargetError):
    """No answer: the name does not resolve, the port is closed, the host has no route, the time-out passed, or the TLS
    handshake failed, as with a certificate of an unknown authority."""


class ProtocolError(TargetError):
    """The service gave an answer that its protocol does not define."""


class TargetBusyError(PublisherError):
    """Another run is sending to a target, so the command was not carried out."""

    retry_helps = True

    def __init__(self, target: str) -> None:
        super().__init__(f"another run is sending to target {target}", hint="Try again when it has finished")


class StoppedError(PublisherError):
    """The program was interrupted before a command had finished."""

    retry_helps = True
