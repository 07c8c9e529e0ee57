"""Faults that a rehearsal or a test injects: by probability, by count, by the content of a message.

A fault is data with the same keys in Python and in the JSON of the administration address. Random choices have a seed:
the same requests in the same order get the same faults.

A fault applies before or instead of the service's work, or after it: then only the answer is affected.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from publisher.simulator.server import Response

Kind = Literal["status", "html", "json", "close", "reset", "slow", "hang", "expire"]
Service = Literal["sgas", "query", "publish", "pull", "token"]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault.

    `kind`: "status" answers `code` with a text such as the service has for it; "html" and "json" answer `code` (give
    200) with a body that the protocol does not have; "close" ends the connection without an answer, "reset" likewise
    with a TCP reset; "slow" lets the answer drip, a byte every `interval_s`; "hang" answers nothing until the client
    gives up; "expire" makes every token invalid (401) and leaves the rest to the service. `stored`: the request takes
    effect first, and only its answer is affected. `service`: only there (None: every one). `match`: only messages in
    which this regular expression is found; `texts`: only messages that contain one of these texts, literally. For AMS
    both look at the message, not at its base64. Of the requests that match, the first `skip` pass; the fault applies to
    each further one with `probability`, at most `count` times.
    """

    kind: Kind
    code: int = 500
    service: Service | None = None
    stored: bool = False
    match: str = ""
    texts: tuple[str, ...] = ()
    skip: int = 0
    count: int | None = None
    probability: float = 1.0
    retry_after: str | None = None
    interval_s: float = 1.0

    def __post_init__(self) -> None:
        """Raises `ValueError` for a fault that is impossible."""
        if not 200 <= self.code <= 599:
            raise ValueError(f"code {self.code}: a status from 200 to 599")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability {self.probability}: from 0 to 1")
        if self.interval_s <= 0:
            raise ValueError(f"interval_s {self.interval_s}: more than 0")
        if self.retry_after is not None and not re.fullmatch(r"[ -~]{1,100}", self.retry_after):
            raise ValueError("retry_after: one line of printable ASCII")
        try:
            re.compile(self.match)
        except re.error as error:
            raise ValueError(f"match: {error}") from error


class Faults:
    """The active faults. `choose` is called once per request. Thread-safe."""

    def __init__(self, faults: Sequence[Fault] = (), *, seed: int = 0) -> None:
        """`seed` makes random choices repeatable."""
        self._lock = threading.Lock()
        self._seed = seed
        self._faults: tuple[_CountedFault, ...] = ()
        self._random = random.Random(seed)  # noqa: S311 - repeatable chance, not a secret
        self.replace(faults)

    def replace(self, faults: Sequence[Fault], *, seed: int | None = None) -> None:
        """Activate these faults and no others; counts and random choices start again."""
        with self._lock:
            self._seed = self._seed if seed is None else seed
            self._random = random.Random(self._seed)  # noqa: S311 - as above
            self._faults = tuple(_CountedFault(fault) for fault in faults)

    def choose(self, service: Service, content: Callable[[], bytes]) -> Fault | None:
        """The fault that applies to this request. `content` returns its decoded content; it is called only if a fault
        depends on it."""
        if not self._faults:
            return None
        with self._lock:
            for counted in self._faults:
                if counted.applies(service, content, self._random):
                    return counted.fault
        return None

    def applied(self) -> list[tuple[Fault, int]]:
        """How often each fault was applied."""
        with self._lock:
            return [(counted.fault, counted.applied) for counted in self._faults]


class _CountedFault:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = 0
        self.applied = 0
        self._match = re.compile(fault.match.encode()) if fault.match else None
        self._texts = tuple(text.encode() for text in fault.texts)

    def applies(self, service: Service, content: Callable[[], bytes], chance: random.Random) -> bool:
        if not self._matches(service, content):
            return False
        self.seen += 1
        spent = self.fault.count is not None and self.applied >= self.fault.count
        if self.seen <= self.fault.skip or spent or chance.random() >= self.fault.probability:
            return False
        self.applied += 1
        return True

    def _matches(self, service: Service, content: Callable[[], bytes]) -> bool:
        if self.fault.service not in {None, service}:
            return False
        if self._match is not None and self._match.search(content()) is None:
            return False
        return not self._texts or any(text in content() for text in self._texts)


_HTML = b"<html><head><title>Maintenance</title></head><body>We are back soon.</body></html>"


def with_faults(
    faults: Faults,
    service: Service,
    content: Callable[[], bytes],
    work: Callable[[], Response],
    failure: Callable[[int], Response],
    expire: Callable[[], None] | None = None,
) -> Response:
    """Do the work, unless a fault applies. `failure` returns the service's own answer with a status; `expire` makes
    all tokens invalid."""
    fault = faults.choose(service, content)
    if fault is not None and fault.kind == "expire" and expire is not None:
        expire()
    if fault is None or fault.kind == "expire":
        return work()
    answer = work() if fault.stored else None
    return _faulty(fault, answer, failure)


def _faulty(fault: Fault, answer: Response | None, failure: Callable[[int], Response]) -> Response:
    extra = () if fault.retry_after is None else (("Retry-After", fault.retry_after),)
    if fault.kind == "close" or fault.kind == "reset" or fault.kind == "hang":  # noqa: PLR1714 - narrows the type
        return Response(500, b"", delivery=fault.kind)
    if fault.kind == "slow":
        return msgspec.structs.replace(answer or failure(fault.code), delivery="slow", interval_s=fault.interval_s)
    if fault.kind == "html":
        return Response(fault.code, _HTML, headers=extra)
    if fault.kind == "json":
        return Response(fault.code, b'["not", "what", "was", "asked"]', "application/json", extra)
    refusal = failure(fault.code)
    return msgspec.structs.replace(refusal, headers=(*refusal.headers, *extra))
