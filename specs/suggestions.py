"""Help lines: the nearest supported choice."""

import difflib
from collections.abc import Iterable

_FEW = 8  # choices that are worth a reader's time beside the likely one
MAX_SHOWN = 60  # characters of the user's own text in a message


def shortened(text: str) -> str:
    """Text for a message: cut where it is long."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def listed(names: Iterable[object]) -> str:
    """Choices in one line: `a`, `b`."""
    return ", ".join(f"`{name}`" for name in names)


def nearest(wrong: str, choices: Iterable[str], what: str = "supported") -> str:
    """Help for a wrong name: the closest choice if one is close, and all of them where they are few."""
    names = list(choices)
    close = difflib.get_close_matches(wrong[:MAX_SHOWN].lower(), names, n=1, cutoff=0.6)
    all_of_them = f"{what}: {listed(names)}"
    if not close:
        return all_of_them
    meant = f"did you mean `{close[0]}`?"
    return meant if len(names) > _FEW else f"{meant} {all_of_them}"
