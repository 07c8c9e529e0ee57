"""A target that appends messages to a file."""

from pathlib import Path

from publisher.config.schema import AddOnSettings
from publisher.config.target_kind import SecondVersion, TargetKind
from publisher.errors import ConfigError
from publisher.finding import Finding
from publisher.targets.base import Accepted, Transient


class ExampleTarget:
    """A file to which messages are appended; its name is the receipt."""

    kind = "example-file"

    def __init__(self, name, settings, context):
        if "file" not in settings.options:
            raise ConfigError("a target of type example-file needs a file", key=f"targets.{name}.options.file")
        self.name = name
        self._file = Path(settings.options["file"])
        self._limit = settings.batch_bytes

    def payload_limit_bytes(self):
        return self._limit

    def post(self, message):
        try:
            with self._file.open("ab") as file:
                file.write(message.payload)
        except OSError as error:
            return Transient(f"{self._file}: {error.strerror}")
        return Accepted({"file": str(self._file)})

    def check(self):
        there = self._file.parent.is_dir()
        return [Finding(self.name, "green" if there else "red", f"{self._file} can be written: {there}")]

    def close(self):
        pass


KIND = TargetKind(
    name="example-file",
    settings=AddOnSettings,
    factory=ExampleTarget,
    second_version=SecondVersion.REPLACES,  # its reader takes the last record with an id
)
