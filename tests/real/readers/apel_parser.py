"""The APEL client's parsers: the fields of the lines of a log. In: parser, lines; out: the fields, or null."""

import calendar
import json
import sys
from datetime import datetime
from importlib import import_module

parsers = import_module("apel.parsers")
given = json.load(sys.stdin)
parser = getattr(parsers, given["parser"])("SITE", "lrms", True)


def plain(value):
    return calendar.timegm(value.timetuple()) if isinstance(value, datetime) else value


def fields(line):
    record = parser.parse(line)
    return None if record is None else {name: plain(value) for name, value in record._record_content.items()}


json.dump([fields(line) for line in given["lines"]], sys.stdout)
