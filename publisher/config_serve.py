"""`[serve]`: where the page is shown, and to whom."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from publisher.config_types import Count, FilePath, Seconds, Settings


def _addresses(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        raise ValueError("is not an IP address or network such as 127.0.0.1 or 192.0.2.0/24") from None
    return value


Addresses = Annotated[str, AfterValidator(_addresses)]
"""An IP address, or a network of them."""


class Serve(Settings):
    """`[serve]`: the page with reports and the publishing status."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: Count = Field(default=8642, ge=0, le=65535, description="Port to listen on; 0: any that is free.")
    names: tuple[str, ...] = Field(
        default=(), description="Further names that the page is called by, such as that of a proxy before it."
    )
    proxies: tuple[Addresses, ...] = Field(
        default=(),
        description="Addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.",
    )
    tokens: FilePath | None = Field(
        default=None, description="File with groups and users, mode 0600. Without, everybody on this host sees all."
    )
    certificate: FilePath | None = Field(default=None, description="PEM file with the server's certificate and chain.")
    key: FilePath | None = Field(default=None, description="PEM file with its key, mode 0600 or 0400, no pass phrase.")
    session: Seconds = Field(default=43_200.0, gt=0, description="How long a log-in lasts.")

    @model_validator(mode="after")
    def _together(self) -> Serve:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        return self
