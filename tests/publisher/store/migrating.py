"""A store made by the migrations alone, from the first to the last."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from publisher.store.database import MIGRATIONS


def migrate_from_nothing(url: str, to: str = "head") -> None:
    """Run all migrations, or those up to one, over an empty database."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, to)
    engine.dispose()
