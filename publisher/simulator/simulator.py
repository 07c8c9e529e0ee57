"""The simulator as one object: SGAS and AMS on loopback, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from cryptography import x509

from publisher.security.revocation import RevocationLists
from publisher.simulator.ams import Ams
from publisher.simulator.apel import ApelServer, Receiver
from publisher.simulator.faults import Fault, Faults
from publisher.simulator.pki import Pki
from publisher.simulator.server import SimulatorServer
from publisher.simulator.sgas import SHIPPED_LIMIT_BYTES, Sgas
from publisher.simulator.site import SimulatorSite

DEFAULT_TOPICS: Final[Mapping[str, Sequence[str]]] = {"gLite-APEL": ("apel",)}
"""Subscriptions by topic."""


class Simulator:
    """Listens from `start` (or `with`) to `close`. `port` and `token_port` 0: any free port.

    The token service answers at both ports. Options are those of `Sgas`, `Ams` and `ApelServer`.
    """

    def __init__(
        self,
        pki: Pki,
        *,
        faults: Sequence[Fault] = (),
        seed: int = 0,
        port: int = 0,
        token_port: int = 0,
        check_depth: int = 2,
        limit_bytes: int = SHIPPED_LIMIT_BYTES,
        rights: Mapping[str, Iterable[str]] | None = None,
        project: str = "accounting",
        topics: Mapping[str, Iterable[str]] = DEFAULT_TOPICS,
        authorised: Iterable[str] | None = None,
        publishers: Iterable[str] | None = None,
        oversize: int = 500,
        eager: bool = False,
        receiver: Receiver | None = None,
        signers: Sequence[str] | None = None,
    ) -> None:
        self.pki = pki
        self.faults = Faults(faults, seed=seed)
        self.sgas = Sgas(self.faults, check_depth=check_depth, limit_bytes=limit_bytes, rights=rights)
        self.apel = ApelServer(
            x509.load_pem_x509_certificates(pki.ca_file.read_bytes()),
            lists=RevocationLists(pki.ca_directory), receiver=receiver, signers=signers,
        )  # fmt: skip
        self.ams = Ams(
            self.faults, self.apel, project=project, topics=topics, authorised=authorised, publishers=publishers,
            oversize=oversize, eager=eager,
        )  # fmt: skip
        self._ports = (port, token_port)
        self._servers: list[SimulatorServer] = []

    def start(self) -> None:
        """Start to listen. Raises `OSError` for a port in use."""
        site = SimulatorSite(self.sgas, self.ams, self.faults)
        try:
            for port in self._ports:
                self._servers.append(SimulatorServer(site, self.pki, port=port))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Stop listening. What the services have can still be read."""
        while self._servers:
            self._servers.pop().close()

    @property
    def port(self) -> int:
        """The port of SGAS, AMS, and the administration address."""
        return self._servers[0].port

    @property
    def token_port(self) -> int:
        """The port of the token service (8443 at ARGO)."""
        return self._servers[1].port

    @property
    def sgas_url(self) -> str:
        """Base URL of SGAS."""
        return f"https://localhost:{self.port}{self.sgas.base}"

    @property
    def ams_url(self) -> str:
        """URL of AMS."""
        return f"https://localhost:{self.port}"

    @property
    def token_url(self) -> str:
        """URL of the token service."""
        return f"https://localhost:{self.token_port}"

    @property
    def admin_url(self) -> str:
        """URL of the administration address."""
        return f"https://localhost:{self.port}/_simulator"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
