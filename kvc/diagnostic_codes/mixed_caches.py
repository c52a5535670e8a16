"""Codes 143 to 149: mixed caches, `retain` and what it means for layers and drafts."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC143": Code(
        "a twin that is no more precise than its history",
        "A twin is a second copy of the first and last rows, kept for its precision: in the history's own encoding, "
        "or a lower one, it would take memory and give nothing.",
        "cache: {encoding: fp8, ..., retain: {first: 64, last: 256, encoding: fp8, scales: {source: unit}}}",
    ),
    "KVC144": Code(
        "a twin that attention cannot read",
        "Dense layers read twins in bf16 or fp8. Sparse layers read fp8 ones alone: the rows that they choose are "
        "gathered as fp8 codes, and a twin's bytes are copied among them.",
        "retain: {first: 64, last: 256, encoding: bf16}  # of layers of kind mla_sparse",
    ),
    "KVC145": Code(
        "layers of a mixed cache that have no twin",
        "A note. Layers with the whole history (or a compressed one) have a twin. Windows, chunks and draft layers "
        "have none and keep all their rows in the high encoding; recurrent layers keep their state. An override gives "
        "them another encoding.",
        "",
    ),
    "KVC146": Code(
        "a mixed cache that retains nothing",
        "A note. `first: 0, last: 0` means no twin, whatever else `retain` says: bytes and numbers are those of a "
        "plain cache in the low encoding, in every layer.",
        "",
    ),
    "KVC147": Code(
        "a mixed cache that retains everything",
        "A note. `first + last` reach `target.max_seq_len`, so every row of every sequence is read from the twin. That "
        "is legal; a plain cache in the high encoding gives the same numbers in fewer bytes.",
        "",
    ),
    "KVC148": Code(
        "retained pages that hold more than the retained tokens",
        "A note. Under `unit: page` whole pages are read from the twin: the first ones up to the next page boundary, "
        "the last ones from the page boundary before. How many tokens that are at the end depends on the length.",
        "",
    ),
    "KVC149": Code(
        "drafts that are a tree",
        "Accepted tokens of a tree lie on one branch of it, so that accepting them would move rows inside pools, of "
        "history and twin. Drafted tokens are a chain: what is not accepted is given back from the end.",
        "draft: {kind: eagle, ..., tree: dynamic}",
    ),
}
