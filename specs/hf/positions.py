"""Where a key of a JSON document is written.

The parser of the standard library keeps no positions. They are needed for findings alone, so the text, which is known
to be valid JSON by then, is scanned again for them.
"""

import re
from collections.abc import Sequence

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]')


def place_of(text: str, keys: Sequence[str]) -> tuple[int, int]:
    """Line and column, from 1, of the key at the path ``keys``; of the deepest one that exists; 1, 1 for none."""
    best, depth, matched = -1, 0, 0
    waiting = ""  # a text that is a key if a colon follows
    start = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
            if depth < matched:  # left the object in which the path went on
                break
        elif mark == ":" and depth == matched + 1 and matched < len(keys) and waiting == keys[matched]:
            best, matched = start, matched + 1
        waiting, start = (mark[1:-1], token.start()) if mark[0] == '"' else ("", 0)
    if best < 0:
        return 1, 1
    return text.count("\n", 0, best) + 1, best - text.rfind("\n", 0, best)
