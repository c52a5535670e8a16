"""What is legal in a program at each stage of compilation, as data: the verifier reads these tables after every pass.

A new op is a name in one of the sets; a new stage is a member of `Stage` and a row of `LAYER_OPS` and `LAYER_ROLES`.
"""

from enum import IntEnum
from typing import Literal

from kvc.encodings import ENCODINGS


class Stage(IntEnum):
    """How far a program has come; what holds at a stage holds at all later ones."""

    LOWERED = 0  # every layer graph is self-contained
    HOISTED = 1  # what depends on the step alone is in the prologues
    FUSED = 2  # fused ops may occur
    SELECTED = 3  # every kvc op names its kernel
    CAPTURED = 4  # the capture plan, if there is one, covers the generation phase


_CODECS = sorted({name for e in ENCODINGS.values() for name in (e.codec, *dict(e.codecs).values())})
STEP_OPS = frozenset(
    {"aten.select.int", "kvc.copy_page_tables", "kvc.correct_lengths", "kvc.step_positions", "kvc.write_rows"}
)
PLAIN_OPS = frozenset(
    {
        *(f"kvc.{direction}_{codec}" for direction in ("quantize", "dequantize") for codec in _CODECS),
        "aten.cat",
        "kvc.expand_mla",
        "kvc.gather_rows",
        "kvc.gqa_context",
        "kvc.gqa_context_gathered",
        "kvc.gqa_decode",
        "kvc.gqa_decode_gathered",
        "kvc.index_topk",
        "kvc.merge_states",
        "kvc.mla_context",
        "kvc.mla_context_gathered",
        "kvc.mla_decode",
        "kvc.mla_decode_gathered",
        "kvc.mla_sparse",
        "kvc.overlay_retained_rows",
        "kvc.place_own_rows",
        "kvc.project_heads",
        "kvc.rope",
        "kvc.stage_history",
        "kvc.store_retained_rows",
        "kvc.store_rows",
        "kvc.write_back",
    }
)
FUSED_OPS = frozenset({"kvc.append_gqa", "kvc.append_mla", "kvc.gather_mixed_rows", "kvc.rope_quantize"})

PROLOGUE_OPS = STEP_OPS
LAYER_OPS: dict[Stage, frozenset[str]] = {
    Stage.LOWERED: PLAIN_OPS | STEP_OPS,
    Stage.HOISTED: PLAIN_OPS,
    Stage.FUSED: PLAIN_OPS | FUSED_OPS,
    Stage.SELECTED: PLAIN_OPS | FUSED_OPS,
    Stage.CAPTURED: PLAIN_OPS | FUSED_OPS,
}

# Roles of placeholders. A prologue runs once a step for all layers, so nothing of a single layer can be bound to it.
PROLOGUE_ROLES = frozenset({"step", "feedback"})
_LAYER_ROLES = frozenset({"input", "pool", "scale", "selected", "staging", "table", "weight"})
LAYER_ROLES: dict[Stage, frozenset[str]] = {
    stage: _LAYER_ROLES | (PROLOGUE_ROLES if stage is Stage.LOWERED else {"prologue"}) for stage in Stage
}

# Part of a layer that a graph is (`kvc.graphs.program.STAGING_PARTS`, empty for a whole one) -> what its calls write.
WRITTEN_ROLES = {"": "pool", "stage": "staging", "write_back": "pool"}

# Schema argument -> the role of the placeholder it must be, whatever the op.
ARGUMENT_ROLES = {
    "pool": "pool",
    "twin": "pool",
    "table": "table",
    "staging": "staging",
    "scale": "scale",
    "k_scale": "scale",
    "v_scale": "scale",
    "q_scale": "scale",
    "latent_scale": "scale",
    "rope_scale": "scale",
    "scales": "scale",
    "twin_scales": "scale",
    "code_scale": "scale",
    "row_scale": "scale",
    **{f"{field}_twin_scale": "scale" for field in ("k", "v", "latent", "rope")},
    "w_uk": "weight",
    "w_uv": "weight",
}

# Role of a placeholder -> kind of the constant bound to it.
CONSTANT_KINDS = {"scale": "scale", "table": "rope_table", "weight": "weight"}

# Role of a placeholder -> how a captured graph sees a new value. Layer inputs are made by the model's own code, which
# runs inside the captured region; staging is the engine's, at one address. A role without a rule is refused at capture.
Refresh = Literal["static", "copied", "derived"]
REFRESH_RULES: dict[str, Refresh] = {
    "pool": "static",
    "scale": "static",
    "table": "static",
    "weight": "static",
    "staging": "static",
    "step": "copied",
    "feedback": "static",
    "prologue": "derived",
    "selected": "derived",
    "input": "derived",
}
