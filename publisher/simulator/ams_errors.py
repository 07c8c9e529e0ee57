"""Errors of the ARGO Messaging Service in the words of the real one (the facts on receivers, 4)."""

from __future__ import annotations

import json

from publisher.simulator.server import Response

_JSON = "application/json; charset=utf-8"
_STATUS = {
    400: ("Invalid Message Arguments", "INVALID_ARGUMENT"),
    401: ("Unauthorized", "UNAUTHORIZED"),
    403: ("Access to this resource is forbidden", "FORBIDDEN"),
    404: ("Topic doesn't exist", "NOT_FOUND"),
    408: ("ack timeout", "TIMEOUT"),
    409: ("Resource already exists", "ALREADY_EXISTS"),
    413: ("Message size is too large", "INVALID_ARGUMENT"),
    500: ("Backend Error", "INTERNAL_SERVER_ERROR"),
}


class AmsError(Exception):
    """A request is refused."""

    def __init__(self, code: int, message: str, status: str) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status

    def response(self) -> Response:
        """The answer that says so."""
        return json_response(self.code, {"error": {"code": self.code, "message": self.message, "status": self.status}})


def of_status(code: int) -> Response:
    """What is answered with that status: by the service, or for those that it does not have, by its balancer."""
    known = _STATUS.get(code)
    if known is None:
        return Response(code, f"<html><body><h1>{code}</h1>\n</body></html>\n".encode())
    return AmsError(code, *known).response()


def unauthorized() -> AmsError:
    """No token, or none that is known."""
    return AmsError(401, *_STATUS[401])


def forbidden() -> AmsError:
    """The token's user may not do this."""
    return AmsError(403, *_STATUS[403])


def backend() -> AmsError:
    """The broker did not take it, whatever the reason."""
    return AmsError(500, *_STATUS[500])


def no_route() -> Response:
    """There is nothing at this address."""
    return Response(404, b"404 page not found\n", "text/plain; charset=utf-8")


def json_response(code: int, content: object) -> Response:
    """JSON as the service writes it, indented by three blanks."""
    return Response(code, json.dumps(content, indent=3).encode(), _JSON)
