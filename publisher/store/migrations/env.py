"""Alembic's way in: the connection is given by `publisher.store.database`; there is no ini file."""

from __future__ import annotations

from alembic import context

from publisher.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, transactional_ddl=False)
context.run_migrations()
