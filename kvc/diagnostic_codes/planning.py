"""Codes 2xx: planning the memory."""

from kvc.diagnostic_codes.code import Code

CODES: dict[str, Code] = {
    "KVC201": Code(
        "a row that does not divide into its encoding's groups",
        "An encoding stores whole groups of values in whole bytes; the width of every field of a row must divide.",
        "head_dim: 65  # under an encoding with a scale per 16 values",
    ),
    "KVC202": Code(
        "layers of one lifecycle with different pages",
        "Layers with the same coverage and domain allocate and release their pages together, so one page must hold the "
        "same tokens in each of them.",
        "one full layer with tokens_per_page 32, another with 64",
    ),
    "KVC203": Code(
        "no memory left for a cache",
        "The device must be larger than the spec's `memory.reserve`.",
        "kvc plan SPEC --device 1GiB  # the spec reserves 20GiB",
    ),
    "KVC204": Code(
        "a size that cannot be read",
        "A size is a number and a unit: GB = 1e9 bytes, GiB = 2^30 bytes; without a unit it is bytes.",
        "kvc plan SPEC --device 139Gi",
    ),
    "KVC205": Code(
        "weights of pools that are not one a lifecycle",
        "`memory.pool_ratio` divides the cache among lifecycles, in the order in which `kvc plan` numbers them.",
        "memory: {device: 139GiB, pool_ratio: [3, 1]}  # of a spec with three lifecycles",
    ),
    "KVC206": Code(
        "draft layers that cannot share the target's slots",
        "Lifecycles share slots where their slot-size lists are equal; a draft of other layers has slots of its own.",
        "draft: {..., pool: target}  # one draft layer beside 61 target layers",
    ),
    "KVC207": Code(
        "a question to a plan that cannot be read",
        "`--fit` asks what a mix takes (`tokens=1M`, `sequences=64@32k`) or what a device holds (`device=139GiB`); "
        "counts are decimal, with Ki and Mi for powers of two. `--compare` takes two specs or more.",
        "kvc plan SPEC --fit 64x32k",
    ),
    "KVC208": Code(
        "a plot of an unknown format",
        "`--plot` draws .png, .svg and .pdf; the extension of the file says which.",
        "kvc plan SPEC --plot plan.jpeg",
    ),
    "KVC209": Code(
        "a plot without matplotlib",
        "Plots are drawn by matplotlib, which is in the extra `plot`; nothing else needs it.",
        "kvc plan SPEC --plot plan.png  # after `pip install kvc`, without the extra",
    ),
    "KVC210": Code(
        "a plot that cannot be written",
        "The file is written aside and renamed, so its folder must be there and writable; nothing is left behind.",
        "kvc plan SPEC --plot no/such/folder/plan.png",
    ),
}
