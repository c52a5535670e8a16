"""Codes 3xx: lowering and compiler passes."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC301": Code(
        "an op refuses its arguments",
        "A graph calls an op with shapes, dtypes or attributes that the op does not take. In a graph text it is an "
        "error of the text; while compiling a spec it is a bug in kvc.",
        "%2: f32[T, 4] = aten.add.Tensor(%0, %1)  # %1 has another width",
    ),
    "KVC302": Code(
        "not a graph",
        "The text does not follow the canonical form: a header, one statement a line, a return line at the end.",
        "graph g\n  %0: f32[T] = input.x",
    ),
    "KVC303": Code(
        "a printed type is not the inferred one",
        "Results are inferred again when a graph is read; a difference means that the text was changed or that the op "
        "has changed since it was written.",
        "%1: f32[T, 8] = aten.neg(%0)  # %0 is f32[T, 4]",
    ),
}
