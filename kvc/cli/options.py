"""Options that several commands take."""

from typing import Annotated

import typer

from kvc.diagnostics import fail
from kvc.specs.sizes import BadValue, parse_size

DeviceOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="memory of the device, such as 139GiB, in place of the spec's")
]


def device_bytes(text: str | None) -> int | None:
    """Bytes of ``--device``; raises KVC204 for text that is no size."""
    try:
        return None if text is None else parse_size(text)
    except BadValue as error:
        raise fail("KVC204", f"--device: {error}", help=error.help) from error
