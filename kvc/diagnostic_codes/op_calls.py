"""Codes 55x: a call of an op."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC551": Code(
        "an operand that the op cannot take",
        "The message names the op, the argument and the axis. Nothing was written.",
        "torch.ops.kvc.rope(x, table, positions[:-1], layout='half')",
    ),
    "KVC552": Code(
        "a value of an operand that is out of range",
        "A page, row, position or length points outside the tensor it indexes. Nothing was written.",
        "torch.ops.kvc.rope(x, table, positions + table.shape[0], layout='half')",
    ),
    "KVC553": Code(
        "a write row given twice",
        "Two tokens of one store would go to the same row and the result would depend on their order. Nothing was "
        "written.",
        "torch.ops.kvc.store_rows(pool, planes, torch.tensor([5, 5], dtype=torch.int32), tokens_per_page=32)",
    ),
    "KVC554": Code(
        "an encoding or layout that the op does not know",
        "Encodings are the rows of `kvc.encodings`; a rope layout is `half` or `interleaved`.",
        "torch.ops.kvc.rope(x, table, positions, layout='neox')",
    ),
    "KVC555": Code(
        "a scale that cannot be used",
        "Quantizing multiplies by the fp32 reciprocal of the scale, so both must be finite and positive; above 2**119 "
        "large codes would have no finite value. Codes that are put side by side need one scale.",
        "kvc.ops.codecs.scale_operand('fp8', 0.0)",
    ),
    "KVC556": Code(
        "a rope table that cannot be built",
        "The kind of rope is not known or one of its numbers is missing.",
        "rope: {kind: llama3, theta: 500000}  # without factor",
    ),
    "KVC557": Code(
        "a kernel that cannot run the call",
        "A graph names the kernel of each of its calls. This one is not made for the device or for such a call, or the "
        "package that it is written in is missing.",
        "%5: bf16[T, 32, 128] = kvc.rope(%1, %2, %3) {layout=half} @triton  # on an sm_80 device",
    ),
}
