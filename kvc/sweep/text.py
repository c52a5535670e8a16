"""The text of a sweep and its tokens."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvc.diagnostics import fail

TOPIC = "specialnames"  # the longest help text that comes with Python
_HELP = "name a UTF-8 text file with --text, or lower --tokens"


@dataclass(frozen=True)
class Text:
    """Token ids: the first ``tokens`` are given, each predicts the next one, so there is one more."""

    name: str
    ids: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens that are given."""
        return len(self.ids) - 1

    @property
    def sha256(self) -> str:
        """Of the token ids as decimal numbers in lines."""
        return hashlib.sha256("\n".join(map(str, self.ids)).encode()).hexdigest()


def read_text(path: Path | None) -> tuple[str, str]:
    """Name and content of a text file, or of the help text that comes with Python. Raises KvcError KVC620."""
    if path is None:
        return _help_topic()
    try:
        return path.name, path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("KVC620", f"cannot read the text from {path}: {reason}", help="name a UTF-8 text file") from error


def _help_topic() -> tuple[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:  # some distributions leave it out
        raise fail("KVC620", "this Python comes without its help texts", help=_HELP) from error
    return f"Python's help on {TOPIC}", topics.get(TOPIC, "")


def encode(tokenizer: Any, path: Path | None, tokens: int) -> Text:
    """The first tokens of a text, and one more to predict. Raises KvcError KVC620 where it has fewer."""
    name, content = read_text(path)
    ids: Sequence[int] = tokenizer(content).input_ids
    if len(ids) <= tokens:
        raise fail("KVC620", f"{name} has {len(ids):,} tokens; a sweep over {tokens:,} needs one more", help=_HELP)
    return Text(name, tuple(ids[: tokens + 1]))
