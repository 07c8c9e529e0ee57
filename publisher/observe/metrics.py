"""Metrics for Prometheus: the state of sources and targets, and counters of this process.

The state comes from the ledger, as `status` shows it. The counters (posts, records, bytes, retries, and the time that
answers took) are counted from events and end with the process, as their names say. Names end in their unit; instants
are epoch seconds. An instant that is not known has no sample, so that a rule can ask for its absence.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from publisher import subprocess_worker
from publisher.config.operation import address_of
from publisher.errors import ConfigError, PublisherError
from publisher.events import BatchAnswered, BatchInFlight, BatchSettled, Event, RetryPlanned
from publisher.observe import metrics_listener
from publisher.observe.allocations import AllocationUse, families
from publisher.security.connections import bound_socket, is_loopback
from publisher.status.status import SourceStatus, Status, TargetStatus
from publisher.whole_file import write_whole


class TargetTally(msgspec.Struct, frozen=True):
    """Since the process began: messages answered, records and bytes that the service accepted, repeated attempts,
    seconds from sending a message to its answer."""

    posts: int = 0
    records: int = 0
    bytes: int = 0
    retries: int = 0
    answer_s: float = 0.0


class MetricsObserver:
    """An observer that counts events; called from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._departed: dict[tuple[str, int], float] = {}
        self._targets: dict[str, TargetTally] = {}

    def __call__(self, event: Event) -> None:
        """Count an event."""
        with self._lock:
            match event:
                case BatchInFlight():
                    self._departed[event.target, event.batch_id] = self._clock()
                case BatchAnswered():
                    departed = self._departed.pop((event.target, event.batch_id), None)
                    took_s = self._clock() - departed if departed is not None else 0.0
                    self._add(event.target, posts=1, answer_s=took_s)
                case BatchSettled() if event.outcome == "Accepted":
                    self._add(event.target, records=event.records, bytes=event.bytes)
                case RetryPlanned():
                    self._add(event.target, retries=1)

    def _add(self, target: str, **more: float) -> None:
        before = self._targets.get(target, TargetTally())
        changes = {name: getattr(before, name) + value for name, value in more.items()}
        self._targets[target] = msgspec.structs.replace(before, **changes)

    def targets(self) -> Mapping[str, TargetTally]:
        """The sums so far, by target."""
        with self._lock:
            return dict(self._targets)


PREFIX: Final = "usage_publisher_"
_FIRST_PAUSE_S: Final = 1.0
"""The pause before a listener that ended by itself is started again; doubled each time."""
_LONGEST_PAUSE_S: Final = 60.0
"""The pause grows up to this; a listener that ran longer begins with the first pause again."""

_Value = float | int | None
Item = TypeVar("Item")

_SOURCES: Final[Mapping[str, tuple[str, Callable[[SourceStatus], _Value]]]] = {
    "source_jobs": ("Jobs stored from the source.", lambda item: item.jobs),
    "source_unreadable": ("Lines of the input that could not be read as a job.", lambda item: item.unreadable),
    "source_suspect": ("Jobs held because a user may have made them.", lambda item: item.suspect),
    "source_last_collected_timestamp_seconds": (
        "When the source was last read; not of a retired one.",
        lambda item: None if item.retired else item.last_collected,
    ),
    "source_last_job_end_timestamp_seconds": ("End of the last job read.", lambda item: item.last_job_end),
    "source_read_to_end": ("1: the last read came to the source's end.", lambda item: int(item.read_to_end)),
    "source_silent": ("1: no job for longer than expect_every.", lambda item: int(item.silent)),
    "source_unread_files": (
        "Files that disappeared before they were read completely.",
        lambda item: item.unread_files,
    ),
    "source_failing": ("1: the last read failed.", lambda item: int(item.error is not None)),
}
_TARGETS: Final[Mapping[str, tuple[str, Callable[[TargetStatus], _Value]]]] = {
    "target_oldest_waiting_timestamp_seconds": (
        "End of the oldest job that waits.", lambda item: item.oldest_waiting_end_time,
    ),
    "target_complete_until_timestamp_seconds": (
        "The service has every job that ended before.", lambda item: item.complete_until,
    ),
    "target_last_sent_end_timestamp_seconds": (
        "Latest end of a job that the service has.", lambda item: item.last_sent_end_time,
    ),
    "target_last_attempt_timestamp_seconds": ("When it was last published to.", lambda item: item.last_attempt),
    "target_last_success_timestamp_seconds": (
        "When publishing last ended without a problem.", lambda item: item.last_success,
    ),
    "target_failing": ("1: the last publishing ended with a problem.", lambda item: int(item.last_error is not None)),
    "target_reconciled_timestamp_seconds": (
        "When what was sent was last compared with what the service has.", lambda item: item.reconciled_at,
    ),
    "target_evidence": (
        "1: the service, or a file, gives evidence of what it has; 0: it offers none.",
        lambda item: int(item.evidence != "none" and item.evidence_problem is None),
    ),
    "target_differences": ("Differences that the last reconciliation found.", lambda item: item.differences),
    "target_unconfirmed_since_timestamp_seconds": (
        "When the oldest job was accepted that the service's evidence does not confirm.",
        lambda item: item.unconfirmed_since,
    ),
    "target_shadow": ("1: a shadow target, to which nothing is sent.", lambda item: int(item.shadow)),
    "target_certificate_days": ("Days that our certificate is still valid.", lambda item: item.certificate_days_left),
}  # fmt: skip
_STATES: Final = ("accepted", "confirmed", "waiting", "in_flight", "rejected", "held", "waived", "superseded")
_PROCESS: Final[Mapping[str, tuple[str, Callable[[TargetTally], float]]]] = {
    "process_posts": ("Messages answered, since this process began.", lambda item: item.posts),
    "process_records": ("Records that the service took, since this process began.", lambda item: item.records),
    "process_bytes": ("Bytes of these records, since this process began.", lambda item: item.bytes),
    "process_retries": ("Tries after the first, since this process began.", lambda item: item.retries),
    "process_answer_seconds": ("Time that answers took, since this process began.", lambda item: item.answer_s),
}


class StatusCollector(Collector):
    """Reads the state anew for every scrape."""

    def __init__(
        self,
        status: Callable[[], Status],
        tally: Callable[[], Mapping[str, TargetTally]],
        clock: Callable[[], int],
    ) -> None:
        """`exit_code`, `last_run` (epoch seconds), and `allocations` are set after each run."""
        self._status = status
        self._tally = tally
        self._clock = clock
        self.exit_code: int | None = None
        self.last_run: int | None = None
        self.allocations: Sequence[AllocationUse] = ()

    def describe(self) -> list[GaugeMetricFamily]:
        """No families: the state is not read before a scrape."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The families of a scrape. A store that cannot be read gives `store_readable` 0 and no state."""
        try:
            status: Status | None = self._status()
        except PublisherError:
            status = None
        yield _single("store_readable", "1: the state can be read.", int(status is not None))
        yield _single("scraped_timestamp_seconds", "When these numbers were taken.", self._clock())
        if self.exit_code is not None and self.last_run is not None:
            yield _single("last_run_exit_code", "0: all done; see the exit codes.", self.exit_code)
            yield _single("last_run_timestamp_seconds", "When the last run ended.", self.last_run)
        if status is not None:
            yield _single("complete", "1: every source read, nothing waits.", int(status.complete))
            yield _single("delivered", "1: complete, and nothing is held or rejected.", int(status.delivered))
            yield _single("damaged_jobs", "Stored jobs that were found damaged.", status.damaged_jobs)
            yield from _families(_SOURCES, "source", status.sources)
            yield from _families(_TARGETS, "target", status.targets)
            yield _records(status.targets | status.removed_targets)
        if self.allocations:
            yield from families(self.allocations, self._clock(), f"{PREFIX}allocation_")
        yield from _families(_PROCESS, "target", self._tally())


def _single(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _families(
    described: Mapping[str, tuple[str, Callable[[Item], _Value]]], label: str, items: Mapping[str, Item]
) -> Iterator[GaugeMetricFamily]:
    for name, (text, value_of) in described.items():
        family = GaugeMetricFamily(PREFIX + name, text, labels=[label])
        for key, item in items.items():
            value = value_of(item)
            if value is not None:
                family.add_metric([key], value)
        yield family


def _records(targets: Mapping[str, TargetStatus]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(PREFIX + "target_jobs", "Jobs by state of their delivery.", labels=["target", "state"])
    for name, item in targets.items():
        for state in _STATES:
            family.add_metric([name, state], getattr(item, state))
    return family


def text(collector: StatusCollector) -> str:
    """The metrics in Prometheus' text format."""
    return generate_latest(_registry(collector)).decode()


def write(collector: StatusCollector, path: Path) -> None:
    """Write the file for the textfile collector, whole or not at all, readable for all. Raises `ConfigError`."""
    try:
        write_whole(path, text(collector).encode(), mode=0o644)
    except OSError as error:
        hint = "Check owner and mode of its folder"
        raise ConfigError(f"{path} cannot be written: {error.strerror}", key="metrics.textfile", hint=hint) from error


def serve(
    collector: StatusCollector, listen: str, warn: Callable[[str], object], names: Iterable[str] = ()
) -> Callable[[], None]:
    """Answer at `/metrics`; returns a function that ends that. Raises `ConfigError` for a port in use.

    Requests are to be for loopback names, addresses, the host of `listen`, or `names`; if other hosts can reach it,
    also for the name of this host.
    A separate process (`metrics_listener`) has the connections and asks this one for the metrics, so that connections
    take no descriptors from the publisher. A listener that ended by itself is started again after a pause, and `warn`
    is called with the reason, in another thread.
    """
    bound = _bound(listen)
    host = address_of(listen)[0]
    own = () if is_loopback(host) else (socket.gethostname(), socket.getfqdn())
    try:
        return _Supervisor(collector, bound, warn, [host, *own, *names]).end
    except BaseException:
        bound.close()
        raise


class _Supervisor:
    """Keeps a listener process running on a bound socket, and sends it the metrics."""

    def __init__(
        self, collector: StatusCollector, bound: socket.socket, warn: Callable[[str], object], names: list[str]
    ) -> None:
        """Takes `bound` over: connections wait in its queue while no listener runs. Raises OSError."""
        self._names = names
        self._collector = collector
        self._bound = bound
        self._warn = warn
        self._ended = threading.Event()
        self._lock = threading.Lock()
        """Held to start a listener, and to end: none is started after the end."""
        self._process, self._channel = _started(bound, names)
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the listener, and close the port."""
        with self._lock:
            self._ended.set()
            with suppress(OSError):  # the listener has ended by itself
                self._channel.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._bound.close()

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            _answer(self._collector, self._channel)
            code = self._process.wait()
            if time.monotonic() - began > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            problem = f"the listener for metrics ended: {f'signal {-code}' if code < 0 else f'exit code {code}'}"
            while not self._restarted(problem, pause_s):
                if self._ended.is_set():
                    return
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                problem = "the listener for metrics cannot be started: the system has no memory or descriptors for it"
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _restarted(self, problem: str, pause_s: float) -> bool:
        """Start a listener after a pause, unless this was ended; whether one was started."""
        if self._ended.is_set():
            return False
        self._warn(f"{problem}. It is started again in {pause_s:.0f} s")
        self._ended.wait(pause_s)
        with self._lock:
            if self._ended.is_set():
                return False
            try:
                self._process, self._channel = _started(self._bound, self._names)
            except OSError:
                return False
        return True


def _started(bound: socket.socket, names: list[str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A listener process, and our side of the channel to it. Raises OSError."""
    ours, theirs = socket.socketpair()
    with theirs:
        descriptors = (bound.fileno(), theirs.fileno())
        try:
            process = subprocess.Popen(  # noqa: S603 - ourselves; -P: nothing is imported from the working directory
                [sys.executable, "-P", "-m", metrics_listener.__name__, *map(str, descriptors), *names],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=descriptors,
                env={**subprocess_worker.ENVIRONMENT, **os.environ},
            )  # fmt: skip
        except OSError:
            ours.close()
            raise
    return process, ours


def _bound(listen: str) -> socket.socket:
    try:
        return bound_socket(*address_of(listen))
    except OSError as error:
        raise ConfigError(f"{listen}: {error.strerror}", key="metrics.listen", hint="Choose another port") from error


def _answer(collector: StatusCollector, listener: socket.socket) -> None:
    """Give the listener the metrics whenever it asks, until it ends or is ended."""
    with listener, suppress(OSError):  # it ended
        while listener.recv(1):
            metrics_listener.send_text(listener, text(collector).encode())


def _registry(collector: StatusCollector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry
