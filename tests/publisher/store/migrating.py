"""A store made by the migrations alone, from the first to the last."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from publisher.store.database import SCHEMA


def migrate_from_nothing(url: str) -> None:
    """Run all migrations over an empty database."""
    config = Config()
    config.set_main_option("script_location", str(SCHEMA.migrations))
    engine = create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()
