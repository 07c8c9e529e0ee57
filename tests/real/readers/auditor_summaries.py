"""AUDITOR's APEL plugin: its summaries of a month. In: host, port, site, year, month; out: the text of its message."""

import argparse
import json
import logging
import os
import sys
import tempfile
from importlib import import_module

yaml = import_module("yaml")
config = import_module("auditor_apel_plugin.config")
republish = import_module("auditor_apel_plugin.republish")
client = import_module("pyauditor")
given = json.load(sys.stdin)

SETTINGS = """!Config
plugin: {log_level: ERROR, time_json_path: time.json, report_interval: 86400}
site: {sites_to_report: {REPORTED: [%(site)s]}, benchmark_type: HEPscore23}
messaging:
  {host: 127.0.0.1, port: 1, client_cert: none, client_key: none, project: none, topic: none, timeout: 1, retry: 0}
auditor: {ip: 127.0.0.1, port: %(port)d, timeout: 30, site_meta_field: site_id, use_tls: False}
summary_fields:
  mandatory:
    NormalisedWallDuration: !NormalisedField {score: {name: hepscore23, component_name: Cores}}
    CpuDuration: !ComponentField {name: TotalCPU}
    NormalisedCpuDuration: !NormalisedField
      {base_value: !ComponentField {name: TotalCPU}, score: {name: hepscore23, component_name: Cores}}
    VO: !MetaField {name: voms, regex: '(?<=/).*?(?=/|$)'}
    SubmitHost: !MetaField {name: headnode}
    Processors: !ComponentField {name: Cores}
  optional:
    VOGroup: !MetaField {name: voms, regex: '^/.*?(?=/Role|$)'}
    VORole: !MetaField {name: voms, regex: 'Role=.*?(?=/|$)'}
    GlobalUserName: !MetaField {name: subject}
    NodeCount: !ComponentField {name: NNodes}
"""

messages = []


def signed(_config, message):
    messages.append(message)
    return message


republish.sign_msg = signed
republish.build_payload = lambda signed_message: signed_message
os.chdir(tempfile.mkdtemp())
asked = argparse.Namespace(site="REPORTED", year=given["year"], month=given["month"], dry_run=True)
builder = client.AuditorClientBuilder().address(given["host"], given["port"]).timeout(30)
republish.run(
    logging.getLogger("apel_plugin"),
    yaml.load(SETTINGS % given, Loader=config.get_loaders()),
    builder.build_blocking(),
    asked,
)
_sync, summaries = messages
json.dump(summaries, sys.stdout)
