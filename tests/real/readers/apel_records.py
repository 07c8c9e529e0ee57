"""APEL's server: what its record classes make of messages. In: messages; out: the error of each, or its rows."""

import calendar
import json
import sys
from datetime import datetime
from importlib import import_module

factory = import_module("apel.db.loader.record_factory")


def row(record):
    """The fields of a row as the database gets them, as text; instants are epoch seconds."""
    values = zip(record._db_fields, record.get_db_tuple(), strict=True)
    return {name: text(value) for name, value in values if value is not None}


def text(value):
    if isinstance(value, datetime):
        return str(calendar.timegm(value.timetuple()))
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def read(message):
    try:
        records = factory.RecordFactory().create_records(message)
        return {"kind": type(records[0]).__name__, "rows": [row(each) for each in records]} if records else {"rows": []}
    except Exception as error:  # whatever stops the loader
        return {"error": f"{type(error).__name__}: {error}"}


json.dump([read(message) for message in json.load(sys.stdin)], sys.stdout)
