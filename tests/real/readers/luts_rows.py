"""SGAS LUTS: what it makes of messages before the database. In: messages; out: of each the error, or its rows."""

import contextlib
import json
import sys
from importlib import import_module
from importlib.util import find_spec, spec_from_file_location


class Renamed:
    """Finds what LUTS imports and Python no longer has: by its present name."""

    def find_spec(self, name, _path=None, _target=None):
        if name == "xml.etree.cElementTree":
            return spec_from_file_location(name, find_spec("xml.etree.ElementTree").origin)
        return None


sys.meta_path.append(Renamed())
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
