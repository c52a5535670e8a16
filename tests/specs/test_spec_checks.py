"""Rules between fields: each broken once, with place, code and hint."""

import pytest
from spec_kinds import KINDS
from spec_mixed import MIXED
from spec_texts import VALID, broken, findings, place

from kvc.diagnostic_codes import CODES
from kvc.specs import load_spec_text
from kvc.specs.checks import RULES

_NO_SCALES = ("encoding: fp8", "  scales: {source: unit}\n")


def override(text: str) -> tuple[str, str]:
    return "target:", f"  overrides:\n    - {text}\ntarget:"


# code: list of (old, new, line, column, part of the message, part of the help)
BROKEN: dict[str, list[tuple[str, str, int, int, str, str]]] = {
    "KVC101": [
        ("encoding: fp8", "encoding: fp9", 14, 13, "unknown encoding `fp9`", "did you mean `fp8`?"),
        (*override('{layers: "0", encoding: int8}'), 18, 31, "unknown encoding `int8`", "supported: `fp32`"),
    ],
    "KVC102": [
        ("dtype: fp32", "dtype: fp16", 18, 31, "`bf16` cannot hold the history of a fp16 model", "`fp32`, `fp8`"),
        ("encoding: fp8", "encoding: index_key", 14, 13, "cannot store the rows of a gqa layer", "`nvfp4`"),
        ("encoding: fp8", "encoding: fp8_ds_mla", 14, 13, "cannot store the rows of a gqa layer", "`bf16`"),
    ],
    "KVC104": [
        ("kv_heads: 3", "kv_heads: 4", 10, 17, "6 query heads do not divide into 4 KV heads", "`2`, `3`, `6`"),
        ("kv_heads: 3", "kv_heads: 12", 10, 17, "do not divide", "`6`"),
    ],
    "KVC105": [
        ("theta: 10000", "theta: 10000, dim: 18", 12, 48, "RoPE over 18 of 16", "at most 16"),
        ("theta: 10000", "theta: 10000, dim: 7", 12, 48, "7 is odd", "`6`, `8`"),
        ("head_dim: 16", "head_dim: 15", 11, 17, "15 is odd", "`14`, `16`"),
    ],
    "KVC106": [
        ("tokens_per_page: 16", "tokens_per_page: 0", 15, 20, "pages of 0 tokens", "nearest: `1`, `2`"),
        ("tokens_per_page: 16", "tokens_per_page: 48", 15, 20, "pages of 48 tokens", "nearest: `32`, `64`"),
        ("tokens_per_page: 16", "tokens_per_page: -16", 15, 20, "pages of -16 tokens", "power of two"),
    ],
    "KVC107": [
        ("  scales: {source: unit}\n", "", 14, 13, "encoding `fp8` needs scales", "{source: unit}"),
        ("kvc: 1", "kvc: 1\nattention: {context: fp8}", 2, 22, "fp8 context attention needs scales", "{q: ..., k: "),
    ],
    "KVC108": [
        ("encoding: fp8", "encoding: bf16", 16, 3, "no layer uses these scales", "encodings with scales: `fp8`"),
        (*override('{layers: "0", encoding: bf16, scales: {source: unit}}'), 18, 37, "no layer uses", "remove"),
        (
            "kvc: 1",
            "kvc: 1\nattention: {scales: {source: unit}}",
            2,
            13,
            "context attention is `act`",
            "remove `scales`",
        ),
    ],
    "KVC109": [
        (
            "{source: unit}",
            "{source: values, values: {k: [0.5, 0.5], v: 1.0}}",
            16,
            37,
            "2 scales for 4 layers",
            "one a layer",
        ),
        (
            "kvc: 1",
            "kvc: 1\nattention: {context: fp8, scales: {source: values, values: {q: 1.0, k: [1.0], v: 1.0}}}",
            2,
            69,
            "1 scales for 4 layers",
            "one a layer",
        ),
        (
            *override('{layers: "0-2", scales: {source: values, values: {k: 1.0, v: [1.0]}}}'),
            18,
            65,
            "1 scales for 3 layers",
            "one a layer",
        ),
    ],
    "KVC110": [
        (
            "rope: {kind: default, theta: 10000}\ncache:",
            "rope: none\n      window: 8\ncache:\n  retain: {first: 4, last: 16, encoding: bf16}",
            15,
            3,
            "no layer here can have a twin: `gqa window` (a window holds its last rows only)",
            "remove",
        ),
    ],
    "KVC113": [
        ("repeat: 4", "repeat: 1000000000", 8, 15, "the spec has 1,000,000,000 layers", "at most 100,000"),
    ],
    "KVC114": [
        (*override('{layers: "0-2,4", encoding: bf16}'), 18, 16, "there is no layer 4", "0 to 3"),
        (*override("{layers: 100, encoding: bf16}"), 18, 16, "there is no layer 100", "0 to 3"),
    ],
    "KVC115": [
        (
            *override('{layers: "0-2", encoding: bf16}\n    - {layers: "2", encoding: fp32}'),
            19,
            16,
            "layer 2 is named by two overrides",
            "name each layer",
        ),
    ],
    "KVC116": [("max_seq_len: 256", "max_seq_len: 512", 20, 16, "512 tokens, but the model has 256", "at most 256")],
    "KVC117": [
        ("[1, 2, 4]", "[1, 4, 2]", 22, 3, "buckets must ascend", "write [1, 2, 4]"),
        ("[1, 2, 4]", "[1, 2, 2, 4]", 22, 3, "buckets must ascend", "write [1, 2, 4]"),
        ("[1, 2, 4]", "[1, 2]", 22, 16, "the last bucket is 2", "`max_sequences`, 4"),
        ("[1, 2, 4]", "[1, 2, 8]", 22, 19, "the last bucket is 8", "`max_sequences`, 4"),
    ],
    "KVC118": [
        ("device: cpu", "device: cuda", 17, 1, "needs `arch`", "`sm_90`"),
        ("device: cpu", "device: cuda\n  arch: sm90", 19, 9, "unknown architecture `sm90`", "did you mean `sm_90`?"),
        ("device: cpu", "device: cpu\n  arch: sm_90", 19, 9, "a cpu has no architecture", "remove"),
    ],
    "KVC119": [
        ("kvc: 1", "kvc: 1\ncompile: {require: [fuse_apend]}", 2, 21, "unknown pass", "did you mean `fuse_append`?"),
    ],
    "KVC122": [
        ("kvc: 1", "kvc: 1\nmemory: {device: 16GB, reserve: 16GiB}", 2, 33, "leave nothing", "smaller `reserve`"),
        ("kvc: 1", "kvc: 1\nmemory: {device: 0}", 2, 18, "leave nothing", "larger `device`"),
    ],
    "KVC123": [("max_tokens: 256", "max_tokens: 3", 21, 15, "a step of 3 tokens", "at least 4")],
    "KVC126": [
        ("max_seq_len: 256", "max_seq_len: 1073741824", 20, 16, "takes 68,719,476,736 bytes", "at most 268435456")
    ],
    "KVC124": [
        (
            "{kind: default, theta: 10000}",
            "{kind: llama3, theta: 2, factor: 8, low_freq_factor: 4, high_freq_factor: 4, original_max_position: 8}",
            12,
            66,
            "`low_freq_factor` must be less",
            "1.0 and 4.0",
        ),
        (
            "{kind: default, theta: 10000}",
            "{kind: yarn, theta: 2, factor: 8, beta_slow: 33, original_max_position: 8}",
            12,
            58,
            "`beta_slow` must not exceed",
            "1 and 32",
        ),
    ],
    "KVC125": [(*override('{layers: "0"}'), 18, 7, "the override changes nothing", "`encoding`")],
}
CASES = [(code, *case) for code, cases in BROKEN.items() for case in cases]


@pytest.mark.parametrize(("code", "old", "new", "line", "column", "message", "help"), CASES)
def test_broken_rule(code: str, old: str, new: str, line: int, column: int, message: str, help: str) -> None:
    text = broken(old, new)
    if code == "KVC102":
        text = text.replace(*override('{layers: "0", encoding: bf16}'))
    found = [finding for finding in findings(text) if finding.code == code]
    assert len(found) == 1, findings(text)
    assert place(found[0]) == (line, column)
    assert message in found[0].message and help in found[0].help


def test_every_rule_is_broken_here_and_explained() -> None:
    codes = [rule.code for rule in RULES]
    assert set(codes) == set(BROKEN) | {case.code for case in (*KINDS, *MIXED)}
    assert set(codes) <= set(CODES)


def test_huge_nested_repeats_are_counted_and_never_expanded() -> None:
    layer = "{kind: gqa, repeat: 999999999999999999, heads: 6, kv_heads: 3, head_dim: 16, rope: none}"
    for _ in range(20):
        layer = f"{{repeat: 999999999999999999, layers: [{layer}]}}"
    text = broken(VALID[VALID.index("    - kind") : VALID.index("cache")], f"    - {layer}\n")
    (found,) = findings(text)
    assert found.code == "KVC113" and place(found) == (7, 16)
    assert len(found.message) < 200


def test_as_many_layers_as_allowed() -> None:
    assert load_spec_text(broken("repeat: 4", "repeat: 100000")).num_layers == 100_000
    assert findings(broken("repeat: 4", "repeat: 100001"))[0].code == "KVC113"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kvc: 1", "kvc: 1\nattention: {context: act}"),
        ("kvc: 1", "kvc: 1\ncompile: {require: [fuse_append, capture_cuda_graphs]}"),
        ("kvc: 1", "kvc: 1\nmemory: {device: 139GiB, free_fraction: 0.9, reserve: 17GB}"),
        ("scales: {source: unit}", "scales: {source: unit}\n  retain: {first: 0, last: 0, encoding: bf16}"),
        override('{layers: "0", encoding: bf16, retain: null}'),
        ("tokens_per_page: 16", "tokens_per_page: 1"),
        ("{kind: default, theta: 10000}", "none"),
        ("  buckets: [1, 2, 4]\n", ""),
        ("device: cpu", "device: cuda\n  arch: sm_90"),
    ],
)
def test_allowed(old: str, new: str) -> None:
    load_spec_text(broken(old, new))
