"""SGAS LUTS: what it makes of messages before the database. In: messages; out: of each the error, or its rows."""

import contextlib
import json
import sys
from importlib import import_module

# LUTS imports what Python no longer has.
sys.modules["xml.etree.cElementTree"] = import_module("xml.etree.ElementTree")
splitter = import_module("sgas.usagerecord.ursplitter")
parser = import_module("sgas.usagerecord.urparser")
converter = import_module("sgas.usagerecord.urconverter")


def read(message):
    try:
        records = [parser.xmlToDict(element) for element in splitter.splitURDocument(message)]
        rows = converter.createInsertArguments(records)
    except Exception as error:  # whatever it answers 500 for
        return {"error": f"{type(error).__name__}: {error}"}
    return {"rows": [dict(zip(converter.ARG_LIST, row, strict=True)) for row in rows]}


given = json.load(sys.stdin)
with contextlib.redirect_stdout(sys.stderr):  # it prints elements that it does not know
    answer = [read(message) for message in given]
json.dump(answer, sys.stdout, default=vars)
