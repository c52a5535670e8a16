"""The kvc:: custom ops, one folder an op.

Importing this package registers every op once, as ``torch.ops.kvc.<name>.default``; `OPS` describes them.
"""

from kvc.ops import (
    append_gqa,
    append_mla,
    copy_page_tables,
    correct_lengths,
    expand_mla,
    gather_mixed_rows,
    gather_rows,
    gqa_context,
    gqa_context_gathered,
    gqa_decode,
    gqa_decode_gathered,
    index_topk,
    merge_states,
    mla_context,
    mla_context_gathered,
    mla_decode,
    mla_decode_gathered,
    mla_sparse,
    overlay_retained_rows,
    place_own_rows,
    project_heads,
    rope,
    rope_quantize,
    stage_history,
    step_positions,
    store_retained_rows,
    store_rows,
    write_back,
    write_rows,
)
from kvc.ops.codecs.operators import CODEC_OPS
from kvc.ops.registry import OpDef, register

_FOLDERS = (
    rope,
    rope_quantize,
    store_rows,
    gather_rows,
    store_retained_rows,
    overlay_retained_rows,
    gather_mixed_rows,
    stage_history,
    write_back,
    append_gqa,
    append_mla,
    gqa_context,
    gqa_context_gathered,
    gqa_decode,
    gqa_decode_gathered,
    expand_mla,
    mla_context,
    mla_context_gathered,
    mla_decode,
    mla_decode_gathered,
    index_topk,
    place_own_rows,
    mla_sparse,
    project_heads,
    merge_states,
    copy_page_tables,
    correct_lengths,
    step_positions,
    write_rows,
)
_LIBRARY, OPS = register((*CODEC_OPS, *(folder.OP for folder in _FOLDERS)))

__all__ = ["OPS", "OpDef"]
