"""How a fault meets a request: before or instead of the service's work, or after it when only the answer suffers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from publisher.simulator.faults import Fault, Faults, Service
from publisher.simulator.server import Response

_HTML = b"<html><head><title>Maintenance</title></head><body>We are back soon.</body></html>"


def around(
    faults: Faults,
    service: Service,
    content: Callable[[], bytes],
    work: Callable[[], Response],
    failure: Callable[[int], Response],
    expire: Callable[[], None] | None = None,
) -> Response:
    """Do the work, unless a fault strikes. `failure` gives the service's own answer for a status; `expire` makes all
    tokens invalid, where there are any."""
    fault = faults.choose(service, content)
    if fault is not None and fault.kind == "expire" and expire is not None:
        expire()
    if fault is None or fault.kind == "expire":
        return work()
    answer = work() if fault.stored else None
    return _suffered(fault, answer, failure)


def _suffered(fault: Fault, answer: Response | None, failure: Callable[[int], Response]) -> Response:
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
