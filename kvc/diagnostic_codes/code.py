"""What is known about one diagnostic code."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """A stable code: one line of ``title``, why it is refused and what to do, and an ``example`` that is refused."""

    title: str
    explanation: str
    example: str = ""
