"""Codes 0xx: a spec file as YAML and as the schema sees it."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC001": Code(
        "no such spec",
        "The argument is neither a file nor the name of a spec in the library.",
        "kvc check lama-3.1-8b-fp8",
    ),
    "KVC002": Code(
        "the file cannot be read",
        "It is a directory, or the system refused to open it.",
        "kvc check specs/library",
    ),
    "KVC003": Code(
        "the file is not text",
        "A spec is YAML in UTF-8 without control characters. Model weights and other binary files are no specs.",
        "kvc check model.safetensors",
    ),
    "KVC004": Code(
        "the file is too large",
        "Specs are limited to 1 MiB and 100,000 values, far more than a model needs: equal layers are written once, "
        "with `repeat`. The limit also stops anchors that multiply into gigabytes.",
        "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]  # and so on",
    ),
    "KVC005": Code(
        "the YAML is malformed",
        "The parser stopped at this place. The usual causes: a tab in the indentation, a missing `:` or space after "
        "it, a bracket left open.",
        "model: {dtype: bf16",
    ),
    "KVC006": Code(
        "the file holds no spec",
        "It is empty, or holds comments only.",
        "# yaml-language-server: $schema=...",
    ),
    "KVC007": Code(
        "the file holds several documents",
        "A file is one spec; a line `---` starts another document. Put each spec into its own file.",
        "kvc: 1\n---\nkvc: 1",
    ),
    "KVC008": Code(
        "a key is given twice",
        "YAML libraries silently keep the last one. kvc refuses, since the other value was meant too.",
        "heads: 32\nheads: 8",
    ),
    "KVC009": Code(
        "a tag",
        "Tags (`!!python/object`, `!include`, `!!str`) build objects or convert values in some readers.",
        "name: !!python/object:os.system x",
    ),
    "KVC010": Code(
        "a merge key",
        "`<<` is not part of YAML 1.2 and hides which value wins. Write the fields out, or use `repeat`.",
        "<<: *defaults",
    ),
    "KVC011": Code(
        "a plain value that YAML readers disagree about",
        "YAML 1.1 reads `no` as false, `12:30` as 750 and `010` as 8; YAML 1.2 does not; `1e3` is text in PyYAML and a "
        "number elsewhere. Write numbers in plain decimal, booleans as true or false, and quote what is text.",
        "theta: 1e6",
    ),
    "KVC012": Code(
        "nesting is too deep",
        "Lists and mappings may nest 64 levels deep.",
        "a: [[[[[[[[[[[[[[[[[[[[ ... ]]]]]]]]]]]]]]]]]]]]",
    ),
    "KVC013": Code(
        "a key is not a name",
        "Keys of a spec are names. A number or null as a key is often an unquoted comma in a flow mapping.",
        '{layers: 0-2,30, encoding: bf16}  # write layers: "0-2,30"',
    ),
    "KVC020": Code(
        "an unknown field",
        "The schema has no such field here. Nothing is ever ignored, so a typo cannot switch an option off.",
        "haeds: 32",
    ),
    "KVC021": Code(
        "a field is missing",
        "The field has no safe default. The finding points at the mapping that lacks it.",
        "model: {dtype: bf16, layers: [...]}  # without max_position",
    ),
    "KVC022": Code(
        "a value of the wrong type",
        'Types are not converted: "64" is text, 64.0 is not an integer, `yes` is not a boolean.',
        'tokens_per_page: "64"',
    ),
    "KVC023": Code(
        "a value that is not allowed",
        "The type is right, the value is out of range, badly formed or not one of the choices.",
        "repeat: 0",
    ),
    "KVC024": Code(
        "an unknown kind",
        "The field that says which kind of thing this is (`kind`, `source`) has a value that kvc does not know.",
        "- kind: gqaa",
    ),
}
