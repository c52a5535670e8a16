"""The hash chain of a sequence's tokens: one key a block that stands for the block and all that comes before it."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from kvc.diagnostics import fail

TokenIds = Sequence[int] | np.ndarray

_ID_BYTES = 8


def token_ids(tokens: TokenIds) -> np.ndarray:
    """The ids as int64; KVC504 for anything but a flat sequence of integers of at most 64 bits."""
    ids = np.asarray(tokens)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise fail("KVC504", f"token ids must be a flat sequence of integers, not {ids.dtype} {list(ids.shape)}")
    if ids.dtype.kind == "u" and ids.size and int(ids.max()) >= 2**63:
        raise fail("KVC504", f"token id {int(ids.max())} is over 64 bits with sign")
    return ids.astype(np.int64)


class PrefixChain:
    """Keys of the whole blocks of the token ids known so far.

    A key is the blake2b of the key before it and the block's ids; the first one starts from ``salt``. Equal keys mean
    equal tokens from the start and an equal salt, as surely as 256 bits of a cryptographic hash do not collide.
    """

    def __init__(self, tokens_per_block: int, salt: bytes = b"") -> None:
        self._block_bytes = tokens_per_block * _ID_BYTES
        self._root = blake2b(salt, digest_size=32, person=b"kvc salt").digest()
        self._ids = bytearray()
        self.keys: list[bytes] = []
        self.offered = 0  # blocks whose pages the index has, or was offered
        self.refused: list[tuple[int, int]] = []  # lifecycle and page: it had another sequence's

    @property
    def tokens(self) -> int:
        """How many token ids are known."""
        return len(self._ids) // _ID_BYTES

    def extend(self, ids: np.ndarray) -> None:
        """Add the int64 ids that follow."""
        self._ids += ids.tobytes()
        for start in range(len(self.keys) * self._block_bytes, len(self._ids), self._block_bytes):
            block = self._ids[start : start + self._block_bytes]
            if len(block) == self._block_bytes:
                parent = self.keys[-1] if self.keys else self._root
                self.keys.append(blake2b(parent + block, digest_size=32, person=b"kvc block").digest())

    def key_with_next(self, block: int) -> bytes:
        """The key of a block and the token after it, which must be known."""
        end = (block + 1) * self._block_bytes
        following = bytes(self._ids[end : end + _ID_BYTES])
        return blake2b(self.keys[block] + following, digest_size=32, person=b"kvc next").digest()
