"""The add-on keeps the promises that its descriptors allow."""

import json

import pytest

from publisher.testing import FormatSuite, SourceSuite, TargetSuite


class ExampleDouble:
    """The file, read as its reader does: the last record with an id counts."""

    def __init__(self, file):
        self._file = file
        self.settings = {"type": "example-file", "records": "example-json", "options": {"file": str(file)}}

    def content(self):
        text = self._file.read_text("ascii") if self._file.exists() else ""
        messages = [json.loads(message + "]") for message in text.split("]\n")[:-1]]
        return {record["id"]: record for message in messages for record in message}.items()


class TestTarget(TargetSuite):
    @pytest.fixture
    def service(self, tmp_path):
        return ExampleDouble(tmp_path / "usage.json")

    def value(self, body):
        return json.loads(body)


class TestFormat(FormatSuite):
    name = "example-json"


class TestSource(SourceSuite):
    type = "example-log"

    def write(self, path, runs):
        with path.open("a", encoding="ascii") as log:
            for run in runs:
                log.write(f"{run['number']},ada,{run['end']},{run['wall_s']},{run['cpu_s']},1\n")
