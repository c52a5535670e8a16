"""Bad calls of the ops of mixed caches, in the form of `test_op_errors.CASES`."""

CASES = [
    ("overlay_retained_rows", 0, lambda rows: rows[:1], "KVC551", "fields: names 2 fields, rows 1, twin_scales 2"),
    ("overlay_retained_rows", 1, lambda t: t[:, 16:], "KVC551", "twin: axis page_bytes is 4080, expected 4096"),
    ("overlay_retained_rows", 2, lambda t: t + 99, "KVC552", "kvc::overlay_retained_rows: twin_table[0, 0] is"),
    ("overlay_retained_rows", 3, lambda t: t + 99, "KVC552", "kvc::overlay_retained_rows: lengths[0] is 106"),
    ("overlay_retained_rows", 4, lambda t: t - 9, "KVC552", "kvc::overlay_retained_rows: committed[0] is -4"),
    ("overlay_retained_rows", "first", lambda _: -1, "KVC551", "first: is -1, expected 0 or more"),
    ("overlay_retained_rows", "unit", lambda _: "row", "KVC554", "unit 'row' is not known"),
    ("gather_mixed_rows", "heads", lambda _: [2], "KVC551", "fields: differ in number"),
    ("gather_mixed_rows", 2, lambda t: t[:, 16:], "KVC551", "twin: axis page_bytes is 4080, expected 4096"),
    ("gather_mixed_rows", 3, lambda t: t[:, :-1], "KVC551", "twin_table: axis W is"),
    ("gather_mixed_rows", 5, lambda t: t + 99, "KVC552", "kvc::gather_mixed_rows: committed[0] is 104"),
    ("gather_mixed_rows", "last", lambda _: -5, "KVC551", "last: is -5"),
    ("gather_mixed_rows", "twin_encoding", lambda _: "fp8", "KVC551", "twin_scales[0]: is missing: fp8 needs a scale"),
    ("store_retained_rows", 1, lambda v: [v[0], v[1][:-1]], "KVC551", "values[1]: axis T is 5, expected 6"),
    ("store_retained_rows", 2, lambda t: t * 0 + 7, "KVC553", "rows: write row 7 is given 6 times"),
    ("store_retained_rows", 4, lambda t: t - 9, "KVC552", "positions[0] is -4"),
    ("store_retained_rows", "rotated", lambda _: None, "KVC551", "table: is given and nothing is rotated"),
    ("store_retained_rows", "rotated", lambda _: "q", "KVC551", "rotated: is q, expected one of k, v"),
]
