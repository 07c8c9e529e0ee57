"""The sites of the commands' tests, and a separate simulator."""

from tests.publisher.cli.conftest import collected, collected_site, fresh, fresh_site
from tests.publisher.conftest import simulator
from tests.publisher.simulator.conftest import client, connect, pki

__all__ = ["client", "collected", "collected_site", "connect", "fresh", "fresh_site", "pki", "simulator"]
