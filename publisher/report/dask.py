"""Archives read by a Dask cluster: each month is a task that gives back partial sums, which are added up here.

What is added up are the whole numbers that a report on one machine adds up: the report is the same to the last digit.
The workers read the archive's files themselves, at the same path as here; the request goes there and sums come
back. TLS between client, scheduler and workers is Dask's own: its settings are `distributed.comm.tls`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec

from formats.calendar import Month
from publisher.errors import PublisherError, UsageError
from publisher.report.archive import FILE, ArchiveRuns, folder_of, months_about
from publisher.report.frame import Interval
from publisher.report.request import ReportRequest
from publisher.report.selection import PartialReport, Selection, selected

CONNECT_S: Final = 10
_Part = TypeVar("_Part", bound=PartialReport)
_HOW: Final = "Start a scheduler and workers first: see the documents on archives"


class Task(msgspec.Struct, frozen=True):
    """What a worker gets, except the view's own part: an answer to it must not depend on where it is given.

    `file_bytes` is the size of the month's file as the client sees it; `program` the version of the client.
    """

    request: ReportRequest
    wanted: frozenset[str]
    interval: Interval
    month: Month
    file_bytes: int
    program: str


def gather(
    request: ReportRequest,
    wanted: frozenset[str],
    interval: Interval,
    part: Callable[[Selection, ReportRequest], _Part],
    connect_s: float = CONNECT_S,
) -> _Part:
    """What `part` makes of an archive, month by month on the cluster of the request, reached within `connect_s`.

    Raises `UsageError` where there is no archive, no cluster, or workers that cannot do it; `PublisherError` where the
    cluster was lost meanwhile.
    """
    assert request.archive is not None  # a request with a cluster has one
    archive = request.archive.absolute()
    request = msgspec.structs.replace(request, archive=archive)
    tasks = [
        Task(request, wanted, interval, month, file.stat().st_size, program())
        for month, file in months_about(archive, request.start).items()
    ]
    if not tasks:
        return part(selected(ArchiveRuns(archive), request, wanted, interval), request)  # of no file
    with _connected(str(request.dask), connect_s) as (client, distributed):
        # Nothing may be found at the scheduler that was computed before: the files may be others now.
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
                f"the workers at {request.dask} have not got this program: {error}",
                hint="Install the same version of usage-publisher[dask] there",
            ) from error
        except (distributed.KilledWorker, distributed.CancelledError, OSError, TimeoutError) as error:
            raise PublisherError(
                f"the cluster at {request.dask} was lost: {error}", hint="Look at the logs of its workers"
            ) from error
        finally:
            client.cancel(futures, force=True)
    return whole


def work(part: Callable[[Selection, ReportRequest], _Part], task: Task) -> _Part:
    """What a worker does with a month. Raises `UsageError` where it sees another file than the client does."""
    if program() != task.program:
        raise UsageError(
            f"a worker has version {program()} of this program, and here is {task.program}",
            hint="Install the same version everywhere",
        )
    archive = task.request.archive
    assert archive is not None  # as in `gather`
    file = folder_of(archive, task.month) / FILE
    try:
        with file.open("rb"):
            found = file.stat().st_size
    except OSError as error:
        raise UsageError(
            f"a worker on {_host()} cannot read {file}: {error.strerror}",
            hint="The archive must lie at the same path on every worker's machine, where the worker may read it",
        ) from error
    if found != task.file_bytes:
        raise UsageError(
            f"{file} has {found} bytes for a worker on {_host()}, and {task.file_bytes} here",
            hint="Let all read the same archive, and try again when no program writes it",
        )
    runs = ArchiveRuns(archive, task.month)
    return part(selected(runs, task.request, task.wanted, task.interval), task.request)


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
        make_client: Any = distributed.Client  # which has no types
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
    import socket  # noqa: PLC0415 - for an error

    return socket.gethostname()
