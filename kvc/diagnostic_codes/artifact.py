"""Codes 4xx: artifacts."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC401": Code(
        "something is in the way of the artifact",
        "kvc writes an artifact aside and renames it when it is whole. It replaces another artifact only when told to, "
        "and never anything else.",
        "kvc compile tiny-fp8 -o out  # out exists",
    ),
    "KVC402": Code(
        "the artifact cannot be written",
        "The folder that would hold it is missing, read-only, or the disk is full. Nothing is left behind.",
        "kvc compile tiny-fp8 -o /proc/out",
    ),
    "KVC403": Code(
        "not an artifact",
        "An artifact is the directory that `kvc compile -o` wrote, with a `manifest.json` at its top.",
        "kvc inspect /tmp",
    ),
    "KVC404": Code(
        "an artifact of another format",
        "The artifact was written by a kvc whose format this one does not read. Its version is named.",
        '{"format": 99, ...}',
    ),
    "KVC406": Code(
        "no such graph",
        "The artifact has one graph for every kind of layer and phase, and one prologue a phase.",
        "kvc inspect out --graph gqa7.context",
    ),
    "KVC405": Code(
        "a damaged artifact",
        "A file is missing, cut off or changed since the artifact was written: its digest is not the recorded one.",
        "truncate -s 100 out/manifest.json && kvc inspect out",
    ),
}
