"""Archives read by a Dask cluster: each month is a task that returns partial sums, which are added up here.

The sums are the whole numbers that one machine would add up, so the report is the same to the last digit. The workers
read the archive's files at the same path as this machine. TLS between client, scheduler, and workers is that of Dask:
see its settings `distributed.comm.tls`.
"""

from __future__ import annotations

import importlib.metadata
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from formats.calendar import Month
from publisher.errors import PublisherError, UsageError
from publisher.report.archive import FILE, folder_of, months_about
from publisher.report.request import ReportRequest

CONNECT_S: Final = 10


class PartialReport(Protocol):
    """The result of a view for some of the runs, to which results for others can be added in any order."""

    def add(self, other: Self, /) -> None:
        """Add the result for other runs."""
        ...


_Part = TypeVar("_Part", bound=PartialReport)
PartOfMonth = Callable[[ReportRequest, Month | None], _Part]
"""Computes a month of the archive of a request; None: all that is in the interval. Workers receive it."""
_HOW: Final = "Start a scheduler and workers first: see the documentation of archives"


class Task(msgspec.Struct, frozen=True):
    """The input of a worker, besides the part of the view. The result must not depend on the machine.

    `file_bytes` is the size of the month's file on the client; `program` the version of the client.
    """

    request: ReportRequest
    month: Month
    file_bytes: int
    program: str


def gather(request: ReportRequest, part: PartOfMonth[_Part], connect_s: float = CONNECT_S) -> _Part:
    """The result of `part` for an archive, computed month by month on the cluster of the request.

    The scheduler must answer within `connect_s`. Raises `UsageError` if there is no archive or no cluster, or if the
    workers cannot compute it; `PublisherError` if the cluster is lost meanwhile.
    """
    assert request.archive is not None  # a request with a cluster has one
    archive = request.archive.absolute()
    request = msgspec.structs.replace(request, archive=archive)
    tasks = [
        Task(request, month, file.stat().st_size, program())
        for month, file in months_about(archive, request.start).items()
    ]
    if not tasks:
        return part(request, None)  # of no file
    with _connected(str(request.dask), connect_s) as (client, distributed):
        # Results of earlier requests must not be used: the files may have changed.
        futures = [client.submit(work, part, task, pure=False) for task in tasks]
        try:
            parts = (found for _, found in distributed.as_completed(futures, loop=client.loop, with_results=True))
            whole: _Part = next(parts)
            for one in parts:
                whole.add(one)
        except PublisherError:
            raise
        except ImportError as error:
            raise UsageError(
                f"the workers at {request.dask} do not have this program: {error}",
                hint="Install the same version of usage-publisher[dask] there",
            ) from error
        except (distributed.KilledWorker, distributed.CancelledError, OSError, TimeoutError) as error:
            raise PublisherError(
                f"the connection to the cluster at {request.dask} was lost: {error}", hint="See the logs of its workers"
            ) from error
        finally:
            client.cancel(futures, force=True)
    return whole


def work(part: PartOfMonth[_Part], task: Task) -> _Part:
    """Compute a month on a worker. Raises `UsageError` if it does not see the same file as the client."""
    if program() != task.program:
        raise UsageError(
            f"a worker has version {program()} of this program, and this machine has {task.program}",
            hint="Install the same version everywhere",
        )
    archive = task.request.archive
    assert archive is not None  # as in `gather`
    file = folder_of(archive, task.month) / FILE
    try:
        with file.open("rb"):
            size_bytes = file.stat().st_size
    except OSError as error:
        raise UsageError(
            f"a worker on {_host()} cannot read {file}: {error.strerror}",
            hint="The archive must be readable at the same path on the machine of every worker",
        ) from error
    if size_bytes != task.file_bytes:
        raise UsageError(
            f"{file} has {size_bytes} bytes for a worker on {_host()}, and {task.file_bytes} here",
            hint="All machines must read the same archive. Try again when no program writes to it",
        )
    return part(task.request, task.month)


def program() -> str:
    """The version of this program."""
    return importlib.metadata.version("usage-publisher")


@contextmanager
def _connected(address: str, connect_s: float) -> Iterator[tuple[Any, Any]]:
    """A client of the cluster, and its library. Raises `UsageError`."""
    import distributed  # noqa: PLC0415 - an extra, and half a second
    from distributed.comm.addressing import resolve_address  # noqa: PLC0415

    try:
        resolve_address(address)
        make_client: Any = distributed.Client  # it has no type hints
        client = make_client(address, timeout=connect_s, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {_first_line(error)}", hint=_HOW) from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise UsageError(f"the Dask cluster at {address} has no workers", hint=_HOW)
        yield client, distributed


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _host() -> str:
    return socket.gethostname()
