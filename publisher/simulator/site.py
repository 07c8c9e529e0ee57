"""What the simulator serves on one port: SGAS, AMS with its tokens, and the administration address.

`/_simulator/` is for the person who runs a rehearsal: `GET holdings`, `GET stats`, `POST faults`, `POST forget`,
`POST reset`. It needs no certificate, since the port is on loopback only, and accepts small JSON only.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from formats.utilization.report import builtins as report_builtins
from publisher.simulator import ams, sgas
from publisher.simulator.faults import Fault, Faults
from publisher.simulator.server import Request, Response

_ADMIN = "/_simulator/"
_ADMIN_LIMIT_BYTES = 2**20


class FaultsBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /_simulator/faults`: the faults to activate, and the seed of random choices."""

    faults: list[Fault]
    seed: int | None = None


class ForgetBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /_simulator/forget`: the ids of records that SGAS deletes."""

    records: list[str]


class SimulatorSite:
    """Passes each request to its service."""

    def __init__(self, sgas_service: sgas.Sgas, ams_service: ams.Ams, faults: Faults) -> None:
        self._sgas = sgas_service
        self._ams = ams_service
        self._faults = faults
        self._admin: dict[tuple[str, str], Callable[[bytes], object]] = {
            ("GET", "holdings"): lambda _: self._holdings(),
            ("GET", "stats"): lambda _: self._stats(),
            ("POST", "faults"): self._replace_faults,
            ("POST", "forget"): self._forget,
            ("POST", "reset"): lambda _: self._reset(),
        }

    def limit_bytes(self, path: str) -> int:
        """See `publisher.simulator.server.SimulatedSite`."""
        if path.startswith(_ADMIN):
            return _ADMIN_LIMIT_BYTES
        return ams.BODY_LIMIT_BYTES if path.startswith("/v1/") else self._sgas.limit_bytes

    def too_large(self, path: str) -> Response:
        """See `publisher.simulator.server.SimulatedSite`."""
        return ams.too_large() if path.startswith("/v1/") else sgas.too_large()

    def handle(self, request: Request) -> Response:
        """See `publisher.simulator.server.SimulatedSite`."""
        if request.path.startswith("/v1/"):
            return self._ams.handle(request)
        if request.path == self._sgas.base or request.path.startswith(f"{self._sgas.base}/"):
            return self._sgas.handle(request)
        action = self._admin.get((request.method, request.path.removeprefix(_ADMIN)))
        if action is None or not request.path.startswith(_ADMIN):
            return Response(404, b"Not found\n", "text/plain")
        try:
            return Response(200, msgspec.json.encode(action(request.body)), "application/json")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Response(400, msgspec.json.encode({"error": str(error)}), "application/json")

    def _holdings(self) -> object:
        apel = self._ams.apel.holdings()
        tables = {"jobs": apel.jobs, "summaries": apel.summaries, "normalised": apel.normalised, "sync": apel.sync}
        return {
            "sgas": self._sgas.holdings(),
            "apel": {
                **{table: list(rows.values()) for table, rows in tables.items()},
                "record_ids": apel.record_ids,
                "rejected": apel.rejected,
                "messages": apel.messages,
                "reports": [report_builtins(report) for report in apel.reports],
            },
        }

    def _stats(self) -> object:
        faults = [{"fault": fault, "applied": count} for fault, count in self._faults.applied()]
        return {"sgas": self._sgas.stats(), "ams": self._ams.stats(), "faults": faults}

    def _replace_faults(self, body: bytes) -> object:
        given = msgspec.json.decode(body, type=FaultsBody)
        self._faults.replace(given.faults, seed=given.seed)
        return {"faults": len(given.faults)}

    def _forget(self, body: bytes) -> object:
        return {"forgotten": self._sgas.forget(msgspec.json.decode(body, type=ForgetBody).records)}

    def _reset(self) -> object:
        self._sgas.reset()
        self._ams.reset()
        return {"reset": True}
