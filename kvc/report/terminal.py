"""What the place that text goes to can show."""

import os
from typing import TextIO


def shows_colour(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal with colours: not a pipe, not under NO_COLOR, not a dumb terminal."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def can_encode(stream: TextIO, text: str) -> bool:
    """Whether ``stream`` has an encoding that holds ``text``."""
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
