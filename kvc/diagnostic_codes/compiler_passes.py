"""Codes 310 to 339: compiler passes and the verifier."""

from kvc.diagnostic_codes.code import Code

_BUG = "After every pass the program is checked; a violation is a bug of the pass that is named, so please report it. "

CODES: dict[str, Code] = {
    "KVC310": Code(
        "an unknown compiler pass",
        "`--print-after` and `compile.require` name passes of the pipeline; `docs/passes.md` lists them in order.",
        "kvc compile tiny-fp8 -o out --print-after fuse_apend",
    ),
    "KVC311": Code(
        "a compiler pass broke down",
        "An unexpected error inside a pass: a bug in kvc. The message names the pass and those that ran before it.",
        "pass fuse_append failed after [canonicalize, hoist_step_invariants]: KeyError: 'scale'",
    ),
    "KVC312": Code(
        "a required pass did not fire",
        "A pass in `compile.require` must fire, and leave nothing behind that it was looking for. The finding cites "
        "the nearest place and what was in the way there.",
        "compile: {require: [fuse_rope_quantize]}  # with rope: none",
    ),
    "KVC313": Code(
        "a compiler pass out of order",
        "A pass needs a program that has reached some stage; an earlier pass of the pipeline was left out.",
        "run_passes(program, passes=[FuseAppend()])",
    ),
    "KVC314": Code(
        "no kernel for an op",
        "The capability table has no implementation of the op on the target's device and architecture.",
        "target: {device: cuda, arch: sm_80}",
    ),
    "KVC315": Code(
        "an input that a replay would not refresh",
        "Every input of a captured graph is static, copied each step or derived inside. One without a rule would be "
        "read stale, so it is refused.",
    ),
    "KVC320": Code("a value used before it is defined", _BUG + "Values have one definition, above all uses."),
    "KVC321": Code(
        "a placeholder that is not legal",
        _BUG + "Each stage has its roles of placeholders: after hoisting no layer graph reads the step buffer itself.",
        "%3: i32[B] = step.committed  # in a layer graph after hoist_step_invariants",
    ),
    "KVC322": Code(
        "an op that is not legal at this stage",
        _BUG + "`compiler_passes/stages.py` lists the ops of every stage.",
        "%4: i32[T] = kvc.write_rows(...)  # in a layer graph after hoist_step_invariants",
    ),
    "KVC323": Code(
        "arguments against the conventions",
        _BUG + "Tensors are positional arguments, everything else is given by keyword.",
    ),
    "KVC324": Code(
        "a call that does not type-check",
        _BUG + "The op refuses its arguments, or infers another shape or dtype than the graph records.",
    ),
    "KVC325": Code(
        "an operand of the wrong role",
        _BUG + "Pools, tables and scales are placeholders of that role, bound per layer.",
        "kvc.quantize_fp8(%1, %2)  # %2 is no scale",
    ),
    "KVC326": Code(
        "something other than a pool is written",
        _BUG + "Pool writes are in place; everything else is functional.",
    ),
    "KVC327": Code(
        "pool accesses out of order",
        _BUG + "A generation step reads its own rows as stored, so the store comes first; passes keep the order of "
        "reads and writes of each pool.",
        "%5, %6 = kvc.gqa_decode(...)  # above kvc.store_rows",
    ),
    "KVC328": Code(
        "rows read otherwise than they are stored",
        _BUG + "All accesses of a pool name the same encoding, page size and scale operands: a scale that differs "
        "would scale every value silently. Codes that attention takes are made under the operand that it reads them "
        "under.",
    ),
    "KVC329": Code(
        "a prologue that does not fit the layers",
        _BUG + "Whatever layer graphs take from the prologue it must make, with the same type; what the prologue takes "
        "must be a section of the step buffer.",
    ),
    "KVC330": Code(
        "an incomplete binding",
        _BUG + "Each layer is bound once, to a signature with a graph for both phases, with a constant for every scale "
        "and table.",
    ),
    "KVC331": Code("a call without a kernel", _BUG + "After `select_kernels` every kvc op names its kernel."),
    "KVC332": Code(
        "a capture plan with a gap",
        _BUG + "The plan has a refresh rule for every input of every callable of the generation phase.",
    ),
    "KVC333": Code(
        "the page table of another pool",
        _BUG + "A layer finds its rows through the page table of the pool that it is bound to; through another one it "
        "would read and write the rows of other layers.",
    ),
    "KVC334": Code(
        "a workspace in which values meet",
        _BUG + "Values of a graph that live at the same time have different places, all of them inside the workspace.",
    ),
    "KVC335": Code(
        "rows of a twin that its layer does not retain",
        _BUG + "Every call that reads a twin reads the first and last tokens that `retain` says, in both phases: the "
        "page manager keeps no other rows.",
    ),
}
