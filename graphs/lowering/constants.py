"""The tensors that layers are bound to: scales, RoPE tables and weights.

What the spec gives is named by content, so that equal ones are shared; what a checkpoint gives by layer.
"""

from dataclasses import asdict

from kvc.capabilities.checkpoint_names import KV_B
from kvc.encodings import ENCODINGS
from kvc.graphs.program import Constant
from kvc.ops.rope_table import rope_table, table_digest
from kvc.specs.resolved import LayerRun, MlaShape, Rope, ScaleSource
from kvc.specs.scratch import UNIT, code_scale


def _codecs(encoding: str, scales: ScaleSource) -> dict[str, str]:
    return {field: ENCODINGS[encoding].codec_of(field) for field in scales.fields}


class Constants:
    """The constants of a program; ``of_layer`` makes those of a layer as needed.

    ``ranks`` divide the heads of the model's weights.
    """

    def __init__(self, table_rows: int, ranks: int) -> None:
        self.table_rows, self.ranks = table_rows, ranks
        self.made: dict[str, Constant] = {}
        self._tables: dict[Rope, str] = {}

    def of_layer(self, run: LayerRun, offset: int) -> dict[str, str]:
        """Placeholder -> constant id for layer ``run.first + offset``."""
        layer = run.first + offset
        bound = self._scales(layer, run.scales, _codecs(run.encoding, run.scales), "")
        if run.retain:
            twin = run.retain
            bound |= self._scales(layer, twin.scales, _codecs(twin.encoding, twin.scales), "twin_")
        if run.kernel == "engine":  # rows come after RoPE, and nothing is computed of them
            return bound
        bound |= self._scales(layer, run.context.scales, dict.fromkeys(run.context.scales.fields, "fp8"), "context_")
        if code_scale(run) == UNIT:
            bound[f"scale.{UNIT}"] = self._value("fp8", 1.0)
        rope = run.shape.rope
        return bound | ({"table.rope": self._rope(rope)} if rope else {}) | self._weights(layer, run)

    def _scales(self, layer: int, source: ScaleSource, codecs: dict[str, str], prefix: str) -> dict[str, str]:
        if source.kind == "checkpoint":
            made = {
                field: self._of_checkpoint(f"scale.{layer}.{prefix}{field}", layer, templates, codecs[field])
                for field, templates in source.names
            }
        else:
            made = {field: self._value(codecs[field], value) for field, value in source.values}
        return {f"scale.{prefix}{field}": constant for field, constant in made.items()}

    def _value(self, codec: str, value: float) -> str:
        name = f"scale.{codec}.{value!r}"
        self.made.setdefault(name, Constant("scale", {"codec": codec, "value": value}))
        return name

    def _of_checkpoint(self, name: str, layer: int, templates: tuple[str, ...], codec: str) -> str:
        tensors = [template.replace("{layer}", str(layer)) for template in templates]
        self.made[name] = Constant("scale", {"codec": codec, "tensors": tensors})
        return name

    def _rope(self, rope: Rope) -> str:
        if rope not in self._tables:
            name = self._tables[rope] = f"rope.{len(self._tables)}"
            params = {"rope": asdict(rope) | {"params": dict(rope.params)}, "rows": self.table_rows}
            digest = table_digest(rope_table(rope, self.table_rows))
            self.made[name] = Constant("rope_table", params | {"sha256": digest})
        return self._tables[rope]

    def _weights(self, layer: int, run: LayerRun) -> dict[str, str]:
        """W_UK and W_UV, two views of one tensor of the checkpoint."""
        shape = run.shape
        if not isinstance(shape, MlaShape):
            return {}
        sizes = {"heads": shape.heads, "nope": shape.qk_nope_head_dim, "v": shape.v_head_dim}
        params = {"tensor": KV_B.format(layer=layer), "latent": shape.kv_lora_rank, "ranks": self.ranks, **sizes}
        parts = {f"weight.{part}": f"weight.{layer}.{part}" for part in ("w_uk", "w_uv")}
        for name in parts.values():
            self.made[name] = Constant("weight", {"part": name.rpartition(".")[2], **params})
        return parts
