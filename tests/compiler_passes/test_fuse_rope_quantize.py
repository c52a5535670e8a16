from pass_texts import LAYER, check_miss, check_rewrite, graph_text, program_of

from kvc.compiler_passes.fuse_rope_quantize import FuseRopeQuantize


def test_encoding_moves_into_the_rotation() -> None:
    before = graph_text("""
        %11: bf16[T, 2, 8] = kvc.rope(%1, %6, %7) {layout=half}  # a.yaml:8
        %12: u8[T, 2, 8] = kvc.quantize_fp8(%11, %4)  # a.yaml:8
        %13: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)  # a.yaml:8
        kvc.store_rows(%3, [%12, %13], %10) {tokens_per_page=4}  # a.yaml:8
        return out=%0
    """)
    after = graph_text("""
        %11: bf16[T, 2, 8], %12: u8[T, 2, 8] = kvc.rope_quantize(%1, %6, %7, %4) {encoding=fp8, layout=half}  # a.yaml:8
        %13: u8[T, 2, 8] = kvc.quantize_fp8(%2, %5)  # a.yaml:8
        kvc.store_rows(%3, [%12, %13], %10) {tokens_per_page=4}  # a.yaml:8
        return out=%0
    """)
    check_rewrite(FuseRopeQuantize(), before, after, fired=1)


def test_rotated_value_serves_its_other_users() -> None:
    before = graph_text("""
        %11: bf16[T, 2, 8] = kvc.rope(%1, %6, %7) {layout=interleaved}
        %12: u8[T, 2, 16] = kvc.quantize_bf16(%11, none)
        return k=%11, plane=%12
    """)
    after = graph_text("""
        %11: bf16[T, 2, 8], %12: u8[T, 2, 16] = kvc.rope_quantize(%1, %6, %7, none) {encoding=bf16, layout=interleaved}
        return k=%11, plane=%12
    """)
    check_rewrite(FuseRopeQuantize(), before, after, fired=1)


def test_second_encoding_of_a_rotated_value_stays() -> None:
    before = graph_text("""
        %11: bf16[T, 2, 8] = kvc.rope(%1, %6, %7) {layout=half}
        %12: u8[T, 2, 8] = kvc.quantize_fp8(%11, %4)
        %13: u8[T, 2, 16] = kvc.quantize_bf16(%11, none)
        return low=%12, high=%13
    """)
    after = graph_text("""
        %11: bf16[T, 2, 8], %12: u8[T, 2, 8] = kvc.rope_quantize(%1, %6, %7, %4) {encoding=fp8, layout=half}
        %13: u8[T, 2, 16] = kvc.quantize_bf16(%11, none)
        return low=%12, high=%13
    """)
    (miss,) = check_rewrite(FuseRopeQuantize(), before, after, fired=1).misses
    assert miss.reason == "the rotated value is already encoded as fp8 under scale.k"
    assert miss.at == "%13: u8[T, 2, 16] = kvc.quantize_bf16(%11, none)"


def test_scale_made_after_the_rotation() -> None:
    text = graph_text(
        """
        %10: bf16[T, 2, 8] = kvc.rope(%1, %6, %7) {layout=half}
        %11: f32[2] = scale.late
        %12: u8[T, 2, 8] = kvc.quantize_fp8(%10, %11)
        return plane=%12
        """,
        placeholders=LAYER.replace("  %10: i32[T] = prologue.rows_0\n", ""),
    )
    check_miss(FuseRopeQuantize(), text, "the scale is made after the rotation", "kvc.quantize_fp8")


def test_nearest_place_without_a_rotation() -> None:
    text = graph_text("""
        %11: u8[T, 2, 8] = kvc.quantize_fp8(%1, %4)
        return plane=%11
    """)
    (miss,) = FuseRopeQuantize().nearest(program_of(text))
    assert (miss.reason, miss.at) == (
        "argument x is input.k, not kvc.rope",
        "%11: u8[T, 2, 8] = kvc.quantize_fp8(%1, %4)",
    )
