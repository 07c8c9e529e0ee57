"""serve: the web page with the state of publishing and reports."""

from __future__ import annotations

from typing import Annotated

import typer

from publisher.cli.output import say
from publisher.cli.session import session


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on. Default: [serve] host, 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=0,
            max=65535,
            help="Port to listen on; 0: any free port. Default: [serve] port, 8642.",
        ),
    ] = None,
) -> None:
    """Serve a read-only web page with the state of publishing and reports, until interrupted."""
    from publisher.page.server import PageServer  # noqa: PLC0415

    with session.publisher(read_only=True) as publisher:
        given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
        server = PageServer(publisher, publisher.config.serve.model_copy(update=given), say)
        say(f"The page is at {server.url}")
        server.run()
