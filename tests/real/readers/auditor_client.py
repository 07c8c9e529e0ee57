"""AUDITOR's own client: all records of a server. In: host, port; out: their fields."""

import json
import sys
from importlib import import_module

client = import_module("pyauditor")
given = json.load(sys.stdin)


def scores(component):
    return {score.name: score.value for score in component.scores}


def fields(record):
    return {
        "start": str(record.start_time),
        "stop": str(record.stop_time),
        "runtime": record.runtime,
        "components": {each.name: [each.amount, scores(each)] for each in record.components},
        "site": record.meta.get("site_id"),
        "user": record.meta.get("user_id"),
    }


built = client.AuditorClientBuilder().address(given["host"], given["port"]).timeout(30).build_blocking()
json.dump({record.record_id: fields(record) for record in built.get()}, sys.stdout)
