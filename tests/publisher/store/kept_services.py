"""The services beside the simulators with which a kept store was made: AUDITOR as source and as target, Waldur, and
a service of type https."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from tests.publisher.auditor import AuditorDouble
from tests.publisher.sources.auditor.auditor_server import AuditorServer, auditor_server
from tests.publisher.targets.doubles import HttpsDouble
from tests.publisher.waldur import OFFERING, WaldurDouble


class KeptServices:
    """These services. `read`: the AUDITOR that is a source."""

    def __init__(self, read: AuditorServer) -> None:
        self.read = read
        self.auditor = AuditorDouble()
        self.waldur = WaldurDouble("alice", "atlas", "bio.example.org", "cms")
        self.portal = HttpsDouble()

    @property
    def places(self) -> Mapping[str, str]:
        """What `publisher.toml` names of them."""
        return {
            "read_url": self.read.url,
            "auditor_url": self.auditor.url,
            "waldur_url": self.waldur.url,
            "offering": OFFERING,
            "portal_url": f"{self.portal.url}/usage",
        }

    def written(self) -> list[str]:
        """The requests so far that were to change something at a target."""
        posted = [(request.method, request.path) for request in (*self.auditor.requests, *self.portal.requests)]
        asked = [*posted, *((method, path) for method, path, _ in self.waldur.requests)]
        return [f"{method} {path}" for method, path in asked if method != "GET"]


@contextmanager
def kept_services() -> Iterator[KeptServices]:
    """Empty services that run until the end of the block."""
    with ExitStack() as stack:
        services = KeptServices(stack.enter_context(auditor_server()))
        for double in (services.auditor, services.waldur, services.portal):
            stack.enter_context(double.running())
        yield services
