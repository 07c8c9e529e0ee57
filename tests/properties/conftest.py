"""A real PostgreSQL, as the tests of the publisher have it."""

from tests.publisher.conftest import postgresql

__all__ = ["postgresql"]
