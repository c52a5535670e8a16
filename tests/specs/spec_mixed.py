"""Mixed caches: broken ones, one a rule at least, and what is said about good ones."""

from dataclasses import dataclass

from spec_kinds import LAYERS, Broken, spec_text

LOW = "tokens_per_page: 16, scales: {source: unit}"
UNIT = "scales: {source: unit}"
EAGLE = "draft: {kind: eagle, layers: 1, max_draft_tokens: 3, encoding: bf16"


def mixed(*layers: str, low: str = "nvfp4", retain: str = "encoding: bf16", more: str = "", **other: str | int) -> str:
    """A spec whose cache retains tokens; ``more`` stands at the end of `cache`, ``other`` as in `spec_text`."""
    first = "" if "first" in retain else "first: 4, last: 8, "
    cache = f"encoding: {low}, {LOW}, retain: {{{first}{retain}}}{more}"
    return spec_text(*layers, cache=cache, **other)


def override(text: str) -> str:
    """One override, for the end of `cache`."""
    return f", overrides: [{{{text}}}]"


_DS = LAYERS["mla"].replace("kv_lora_rank: 64", "kv_lora_rank: 512").replace("rope_head_dim: 16", "rope_head_dim: 64")
_DS_CACHE = "encoding: fp8_ds_mla, tokens_per_page: 16, retain: {first: 4, last: 8, encoding: bf16}"

MIXED = (
    # No layer, or no history, that takes a twin.
    Broken("KVC110", mixed("kda"), "retain", "`recurrent kda` (a state has no rows)", "remove `retain`"),
    Broken("KVC110", mixed("window", "chunk"), "retain", "a window holds its last rows only; a chunk holds", "remove"),
    Broken(
        "KVC110",
        mixed("gqa", "window", more=override(f'layers: "1", retain: {{first: 1, last: 1, encoding: fp8, {UNIT}}}')),
        "retain",
        "no layer here can have a twin: `gqa window`",
        "remove `retain`",
    ),
    Broken(
        "KVC110",
        spec_text(_DS, cache=_DS_CACHE),
        "retain",
        "encoding `fp8_ds_mla` of a mla layer cannot have a twin: whole rows in the format of other engines' kernels",
        "nearest: a history in `fp8`",
    ),
    # Not more precise.
    Broken(
        "KVC143",
        mixed("gqa", low="fp8", retain=f"encoding: fp8, {UNIT}"),
        "retain",
        "a twin in `fp8` is no more precise than the history of gqa layers in `fp8`",
        "nearest: a twin in `bf16` (supported twins: `bf16`); or remove `retain`",
    ),
    Broken(
        "KVC143",
        mixed("mla", low="bf16", retain=f"encoding: fp8, {UNIT}").replace(f"{LOW}, ", "tokens_per_page: 16, "),
        "retain",
        "a twin in `fp8` is no more precise than the history of mla layers in `bf16`",
        "nearest: a history in `nvfp4_rope_fp8` (supported: `nvfp4_rope_fp8`, `nvfp4_residual`, `nvfp4`)",
    ),
    Broken(
        "KVC143",
        mixed("dsa", low="fp8", retain=f"encoding: fp8, {UNIT}"),
        "retain",
        "a twin in `fp8` is no more precise than the history of mla_sparse dsa layers in `fp8`",
        "nearest: a history in `nvfp4_rope_fp8`",
    ),
    Broken(
        "KVC143",
        mixed("gqa", "gqa", more=override('layers: "1", encoding: bf16')),
        "bf16}]",
        "a twin in `bf16` is no more precise than the history of gqa layers in `bf16`",
        "nearest: a history in `fp8` (supported: `fp8`, `nvfp4`); or add `retain: null`",
    ),
    # Not readable.
    Broken(
        "KVC144",
        mixed("gqa", retain="encoding: fp32"),
        "retain",
        "attention of a gqa layer cannot read a twin in `fp32`: dense attention reads",
        "nearest: a twin in `bf16` (supported twins: `bf16`, `fp8`); or remove `retain`",
    ),
    Broken(
        "KVC144",
        mixed("dsa"),
        "retain",
        "attention of a mla_sparse dsa layer cannot read a twin in `bf16`: the rows that an indexer chooses",
        "nearest: a twin in `fp8` (supported twins: `fp8`)",
    ),
    Broken("KVC144", mixed("v4"), "retain", "attention of a mla_sparse deepseek_v4 layer", "a twin in `fp8`"),
    Broken(
        "KVC144",
        mixed("gqa", "dsa", more=override(f'layers: "1", {UNIT}')),
        "{layers",
        "attention of a mla_sparse dsa layer cannot read a twin in `bf16`",
        "or add `retain: null`",
    ),
    Broken(
        "KVC144",
        mixed("dsa", retain="encoding: index_key"),
        "retain",
        "attention of a mla_sparse dsa layer cannot read a twin in `index_key`",
        "nearest: a twin in `fp8`",
    ),
    # Staging.
    Broken(
        "KVC161",
        spec_text("mla", more=f"attention: {{kernel: engine, context: fp8, {UNIT}}}"),
        "fp8, scales",
        "fp8",
        "write `kernel: kvc`",
    ),
    # Drafts.
    Broken(
        "KVC149",
        spec_text("gqa", more=f"{EAGLE}, tree: dynamic}}"),
        "dynamic",
        "drafts cannot be a dynamic tree: accepted tokens lie on one branch of a tree, so accepting them moves rows",
        "remove `tree`",
    ),
    Broken(
        "KVC149",
        mixed("gqa", more="").replace("target:", f"{EAGLE}, tree: static}}\ntarget:"),
        "static",
        "one",
        "chain",
    ),
    # Scales and widths of twins, of what overrides name, too.
    Broken(
        "KVC107",
        mixed("gqa", retain="encoding: fp8"),
        "retain",
        "encoding `fp8` of retained tokens needs scales",
        "{k: ..., v: ...}",
    ),
    Broken(
        "KVC108",
        mixed("gqa", retain=f"encoding: bf16, {UNIT}"),
        UNIT,
        "no layer uses these scales: encoding `bf16` has none",
        "remove `scales`",
    ),
    Broken(
        "KVC130",
        mixed(
            "gqa",
            "mla",
            retain="encoding: fp8, scales: {source: values, values: {k: 1.0, v: 1.0}}",
            more=override(f'layers: "1", {UNIT}'),
        ),
        "values: {k",
        "no scale for `latent`",
        "`k`, `v`, `latent`",
    ),
    Broken(
        "KVC130",
        spec_text(
            "mla",
            "gqa",
            cache="encoding: nvfp4, tokens_per_page: 16, scales: {source: values, values: {latent: 0.5}}"
            + override('layers: "1", encoding: fp8'),
        ),
        "values: {latent",
        "no scale for `k`, `v`",
        "`latent`, `k`, `v`",
    ),
    Broken(
        "KVC102",
        mixed("gqa", low="nvfp4").replace("dtype: bf16", "dtype: fp16"),
        "bf16}}",
        "encoding `bf16` cannot hold the history of a fp16 model",
        "`fp32`, `fp8`, `nvfp4`",
    ),
    Broken(
        "KVC141",
        mixed("gqa", LAYERS["gqa"].replace("head_dim: 16", "head_dim: 24"), more=override(f'layers: "1", {UNIT}')),
        "{layers",
        "encoding `nvfp4` cannot store a gqa layer of this spec: 24 values do not divide into groups of 16",
        "nearest: `fp8`, `bf16`",
    ),
)

# Variants that are known by name.
VARIANTS = (
    Broken(
        "KVC024",
        spec_text(LAYERS["dsa"].replace("variant: dsa", "variant: csa2")),
        "csa2",
        "variant `csa2` is not supported: DeepSeek-V4.1 CSA2: which tokens its rows stand for",
        "`dsa`, `deepseek_v4`",
    ),
    Broken(
        "KVC024",
        spec_text(LAYERS["dsa"].replace("variant: dsa", "variant: nsa")),
        "nsa",
        "variant `nsa` is not supported: native sparse attention",
        "`dsa`, `deepseek_v4`",
    ),
)


@dataclass(frozen=True)
class Noted:
    """A valid spec, and the one note of ``code`` about it at the text ``at`` (its last occurrence)."""

    code: str
    text: str
    at: str
    message: str
    help: str


_GROUP = f"repeat: 9, layers: [{{{LAYERS['gqa']}}}, {{{LAYERS['window']}, repeat: 2}}]"

NOTED = (
    Noted(
        "KVC145",
        mixed("gqa", LAYERS["window"] + ", repeat: 3", "gqa"),
        "{kind: gqa, heads: 8, kv_heads: 4, head_dim: 16, rope: none, window",
        "layers 1-3 (gqa window 64) have no twin and keep a plain cache in `bf16`: a window holds its last rows only",
        "the high encoding is `bf16`; `encoding` of an override chooses another",
    ),
    Noted(
        "KVC145",
        mixed(_GROUP),
        "{" + LAYERS["window"],
        "layers 1-2, 4-5, 7-8, 10-11, ... (18 layers) (gqa window 64) have no twin",
        "the high encoding is `bf16`",
    ),
    Noted(
        "KVC145",
        mixed("gqa", "chunk"),
        "{" + LAYERS["chunk"],
        "layer 1 (gqa chunk 64) has no twin and keeps a plain cache in `bf16`: a chunk holds its own rows only",
        "the high encoding is `bf16`",
    ),
    Noted(
        "KVC145",
        mixed("gqa", "window", more=override(f'layers: "1", encoding: fp8, {UNIT}')),
        "{" + LAYERS["window"],
        "layer 1 (gqa window 64) has no twin and keeps a plain cache in `fp8`",
        "the high encoding is `bf16`, not its own",
    ),
    Noted(
        "KVC145",
        mixed("kda", "gqa"),
        "{" + LAYERS["kda"],
        "layer 0 (recurrent kda) has no twin and keeps a state: a state has no rows",
        "`retain` changes nothing there",
    ),
    Noted(
        "KVC145",
        mixed("v4", retain=f"encoding: fp8, {UNIT}"),
        "{" + LAYERS["v4"],
        "windows of layer 0 have no twin and keep plain caches in `fp8`",
        "compressed rows have one",
    ),
    Noted(
        "KVC145",
        mixed("gqa").replace("target:", "draft: {kind: mtp, layers: 2, max_draft_tokens: 3, encoding: nvfp4}\ntarget:"),
        "draft:",
        "layers 1-2 (draft, gqa) have no twin and keep a plain cache in `nvfp4`: the target's layers verify",
        "the high encoding is `bf16`, not its own; `draft.encoding` chooses another",
    ),
    Noted(
        "KVC146",
        mixed("gqa", "window", retain="first: 0, last: 0, encoding: bf16"),
        "retain",
        "`first: 0, last: 0` retain nothing: no twin, a plain cache in `nvfp4`",
        "remove `retain`",
    ),
    Noted("KVC146", mixed("kda", "gqa", retain="first: 0, last: 0"), "retain", "retain nothing", "remove `retain`"),
    Noted(
        "KVC147",
        mixed("gqa", retain="first: 512, last: 512, encoding: bf16"),
        "retain",
        "everything is retained: first 512 + last 512 tokens are at least max_seq_len, 1,024",
        "a plain cache in `bf16` reads the same rows in fewer bytes",
    ),
    Noted(
        "KVC148",
        mixed("gqa", retain="first: 4, last: 16, unit: page, encoding: bf16"),
        "retain",
        "whole pages of 16 tokens are retained: the first 16 and, by the length, the last 16 to 31",
        "write multiples of 16, or `unit: token` for 4 and 16",
    ),
    Noted(
        "KVC148",
        mixed("gqa", retain="first: 0, last: 17, unit: page, encoding: bf16"),
        "retain",
        "the first 0 and, by the length, the last 17 to 32",
        "multiples of 16",
    ),
)

SILENT = (
    spec_text("gqa", "window", "kda"),
    mixed("gqa"),
    mixed("gqa", retain="first: 16, last: 32, unit: page, encoding: bf16"),
    mixed("gqa", retain="first: 511, last: 512, encoding: bf16"),
    mixed("gqa", "window", more=override('layers: "1", retain: null')),
)
