"""The OpenTelemetry Collector of the platform: our `main`, built with the parts that collector/go.mod names.

Not here: its configuration (charts). Called by `parts`.
"""

from pathlib import Path
from typing import Final

from infra.gobuild import Program
from infra.versions import OTELCOL, OTELCOL_SUM

_SOURCE: Final = Path(__file__).with_name("collector")

COLLECTOR: Final = Program(
    name="otelcol",
    module="",
    version=OTELCOL,
    checksum=OTELCOL_SUM,
    package=".",
    without="",
    linked=f"-s -w -X main.version={OTELCOL}",
    added={file.name: file for file in sorted(_SOURCE.iterdir())},
    system="linux",
    made_by="make images",
)
