"""Names of mixed caches (`mixed_nvfp4_fp8`) written out as an encoding and `retain`."""

from typing import Any

from kvc.encodings import MIXED
from kvc.specs.models import Retain, Spec


def _written_out(encoding: str | None, retain: Retain | None) -> dict[str, Any]:
    """What a name means: new values of `encoding` and `retain`; none where the checks must say what is wrong."""
    pair = MIXED.get(encoding or "")
    if pair is None or retain is None or retain.encoding not in (None, pair[1]):
        return {}
    return {"encoding": pair[0], "retain": retain.model_copy(update={"encoding": pair[1]})}


def expand_aliases(spec: Spec) -> Spec:
    """The spec without names of mixed caches; one that lacks `retain` or contradicts it stays."""
    cache = spec.cache
    overrides = [of.model_copy(update=_written_out(of.encoding, of.retain)) for of in cache.overrides]
    changes = _written_out(cache.encoding, cache.retain) | ({"overrides": overrides} if overrides else {})
    return spec.model_copy(update={"cache": cache.model_copy(update=changes)}) if changes else spec
