"""Codes 16x: layers whose history is staged for an engine's own attention."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC160": Code(
        "a kind of layer that cannot be staged",
        "`attention.kernel: engine` leaves attention to the engine, which reads dense rows that the program gathers "
        "for it. Sparse layers gather what their indexer selects, which is no dense history.",
        "attention: {kernel: engine}  # of a model with mla_sparse layers",
    ),
    "KVC161": Code(
        "fp8 context attention of an engine's kernel",
        "`attention.context: fp8` says how kvc's own attention computes the prefill. Where an engine computes it, the "
        "program stores and stages rows and sees no Q.",
        "attention: {kernel: engine, context: fp8, scales: {source: unit}}",
    ),
}
