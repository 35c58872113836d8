"""The formats of a command's output. Imports nothing that is slow."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from elasticjob_cli.common.arguments import Option


class DataFormat(StrEnum):
    """The formats of what is no object of the API server."""

    TABLE = "table"
    JSON = "json"


class Format(StrEnum):
    """The formats of a page."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Output(StrEnum):
    """The formats of objects."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


DataOutput = Annotated[DataFormat, Option("--output", "-o", help="Format.")]
PageFormat = Annotated[Format, Option("--output", "-o", help="Format.")]
ObjectFormat = Annotated[Output, Option("--output", "-o", help="Format.")]
TABLES = (Output.TABLE, Output.WIDE)
