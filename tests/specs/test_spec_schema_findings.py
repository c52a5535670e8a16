"""What the schema refuses, in our words and at the right place."""

import pytest
from spec_texts import VALID, broken, findings, place

from kvc.specs import load_spec_text

# old piece, new piece, code, line, column, document path, part of the message, part of the help
REFUSED = {
    "typo": ("heads: 6", "haeds: 6", "KVC020", 9, 7, "model.layers[0].haeds", "unknown field `haeds`", "`heads`?"),
    "typo at the top": ("target:", "tarqet:", "KVC020", 17, 1, "tarqet", "unknown field `tarqet`", "`target`?"),
    "typo in a kind": (
        "theta: 10000}",
        "theta: 10000, facto: 8}",
        "KVC020",
        12,
        43,
        "model.layers[0].rope.facto",
        "unknown field `facto`",
        "fields here",
    ),
    "frequencies that do not fall": (  # and YaRN divides by the logarithm of theta
        "theta: 10000}",
        "theta: 1}",
        "KVC023",
        12,
        36,
        "model.layers[0].rope.theta",
        "`theta` must be greater than 1",
        "above 1",
    ),
    "missing field": ("      kv_heads: 3\n", "", "KVC021", 7, 7, "model.layers[0]", "`kv_heads` is missing", "add"),
    "missing at the top": (VALID[VALID.index("target") :], "", "KVC021", 1, 1, "", "`target` is missing", "add"),
    "missing in a mapping": ("  dtype: fp32\n", "", "KVC021", 3, 1, "model", "missing in `model`", "activation dtype"),
    "missing kind": ("kind: gqa", "name: gqa", "KVC021", 7, 7, "model.layers[0]", "`kind` is missing", "add `kind:`"),
    "quoted integer": (
        "tokens_per_page: 16",
        'tokens_per_page: "64"',
        "KVC022",
        15,
        20,
        "cache.tokens_per_page",
        'must be an integer, not the text "64"',
        "drop the quotes: 64",
    ),
    "float for an integer": ("heads: 6", "heads: 6.0", "KVC022", 9, 14, "model.layers[0].heads", "`6.0`", "write 6"),
    "boolean for an integer": ("kvc: 1", "kvc: true", "KVC023", 1, 6, "kvc", "must be 1", "write `kvc: 1`"),
    "null": (
        "encoding: fp8",
        "encoding:",
        "KVC022",
        14,
        3,
        "cache.encoding",
        "must be text, not nothing",
        "write text",
    ),
    "number for text": ("name: valid", "name: 12", "KVC022", 2, 7, "name", "not `12`", 'quote it: "12"'),
    "list for a mapping": ("scales: {source: unit}", "scales: [1]", "KVC022", 16, 3, "cache.scales", "`source`", ""),
    "mapping for a list": ("[1, 2, 4]", "{a: 1}", "KVC022", 22, 3, "target.buckets", "must be a list", "a list"),
    "text for a layer": (
        VALID[VALID.index("    - kind") : VALID.index("cache")],
        "    - gqa\n",
        "KVC022",
        7,
        7,
        "model.layers[0]",
        "must be a mapping with a `kind`",
        "kind",
    ),
    "repeat 0": (
        "repeat: 4",
        "repeat: 0",
        "KVC023",
        8,
        15,
        "model.layers[0].repeat",
        "at least 1, not `0`",
        "1 or more",
    ),
    "no layers": (
        VALID[VALID.index("  layers") : VALID.index("cache")],
        "  layers: []\n",
        "KVC023",
        6,
        3,
        "model.layers",
        "must not be empty",
        "at least 1",
    ),
    "wrong choice": ("dtype: fp32", "dtype: fp23", "KVC023", 4, 10, "model.dtype", "`bf16`, `fp16`, `fp32`", "`fp32`?"),
    "bad name": ("name: valid", "name: Not Valid", "KVC023", 2, 7, "name", "lower-case", "for example"),
    "infinite number": (
        "theta: 10000",
        "theta: 1.0e+999",
        "KVC023",
        12,
        36,
        "model.layers[0].rope.theta",
        "at most",
        "",
    ),
    "unknown kind": ("kind: gqa", "kind: gqqa", "KVC024", 7, 13, "model.layers[0]", "unknown kind `gqqa`", "`gqa`?"),
    "unknown rope": ("kind: default", "kind: yarm", "KVC024", 12, 20, "model.layers[0].rope", "`yarm`", "`yarn`?"),
    "rope by name": (
        "{kind: default, theta: 10000}",
        "yarn",
        "KVC022",
        12,
        13,
        "model.layers[0].rope",
        "a mapping",
        "",
    ),
    "unknown scale source": (
        "source: unit",
        "source: unti",
        "KVC024",
        16,
        20,
        "cache.scales",
        "unknown source",
        "`unit`?",
    ),
    "a name without the layer": (
        "source: unit",
        "source: checkpoint, names: {k: k_scale}",
        "KVC023",
        16,
        43,
        "cache.scales.names.k",
        "needs `{layer}`",
        "model.layers.{layer}.self_attn.k_scale",
    ),
    "a name with other braces": (
        "source: unit",
        'source: checkpoint, names: {k: "{layer}.{0}"}',
        "KVC023",
        16,
        43,
        "cache.scales.names.k",
        "no other braces",
        "",
    ),
    "unknown layer kind": (
        "kind: gqa",
        "kind: csa2",
        "KVC024",
        7,
        13,
        "model.layers[0]",
        "unknown kind `csa2`",
        "`gqa`, `mla`, `mla_sparse`, `recurrent`",
    ),
    "kind is a number": (
        "kind: gqa",
        "kind: 3",
        "KVC022",
        7,
        13,
        "model.layers[0]",
        "`kind` must be text",
        "as a name",
    ),
    "bad size": (
        "target:",
        "memory: {device: 139GIB}\ntarget:",
        "KVC023",
        17,
        18,
        "memory.device",
        "`GIB` is not a unit",
        "write 139GiB",
    ),
    "bad layer list": (
        "target:",
        '  overrides: [{layers: "3-1", encoding: bf16}]\ntarget:',
        "KVC023",
        17,
        24,
        "cache.overrides[0].layers",
        "runs backwards",
        '"1-3"',
    ),
}


def test_the_spec_to_break_is_valid() -> None:
    assert load_spec_text(VALID).num_layers == 4


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    old, new, code, line, column, path, message, help = REFUSED[case]
    found = [finding for finding in findings(broken(old, new)) if finding.code == code]
    assert found, findings(broken(old, new))
    assert (place(found[0]), found[0].path) == ((line, column), path)
    assert message in found[0].message
    assert help in found[0].help and found[0].help
    assert "pydantic" not in found[0].message.lower() and "Input should" not in found[0].message


def test_all_findings_in_the_order_of_the_file() -> None:
    text = (
        broken("heads: 6", "haeds: 6").replace("fp32", "fp23").replace("repeat: 4", "repeat: 1e3").replace("cpu", "tpu")
    )
    found = findings(text)
    assert [(finding.code, place(finding)[0]) for finding in found] == [
        ("KVC023", 4),
        ("KVC021", 7),
        ("KVC011", 8),
        ("KVC020", 9),
        ("KVC023", 18),
    ]


def test_a_value_that_the_reader_refused_is_reported_once() -> None:
    assert [found.code for found in findings(broken("heads: 6", "heads: 0x6"))] == ["KVC011"]


def test_positions_inside_nested_groups() -> None:
    nested = """\
    - repeat: 2
      layers:
        - repeat: 3
          layers:
            - {kind: gqa, heads: 6, kv_heads: 3, head_dim: "16", rope: none}
"""
    text = broken(VALID[VALID.index("    - kind") : VALID.index("cache")], nested)
    (found,) = findings(text)
    assert (found.code, place(found), found.path) == (
        "KVC022",
        (11, 60),
        "model.layers[0].layers[0].layers[0].head_dim",
    )


def test_a_key_named_like_a_kind_does_not_mislead_positions() -> None:
    found = findings(broken("heads: 6", "gqa: {heads: 7}\n      heads: x"))
    assert [(finding.code, place(finding)) for finding in found] == [("KVC020", (9, 7)), ("KVC022", (10, 14))]
