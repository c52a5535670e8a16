"""Sparse latent attention in plain tensors: which rows an indexer chooses, and attention over those."""

import torch
from mixed_model import Model, rotated, stored

TOP_K, ROTATED_KEY = 7, 16  # of the index key's features, the first are rotated


def scratch(values, name, encoding):
    """Rows as attention reads them: those of quantized histories are e4m3 codes."""
    return values if encoding in ("fp32", "bf16") else stored(values, "fp8", name)


class SparseModel(Model):
    """`dsa` layers: inputs of `mla`, and of an indexer where it is the layer's own."""

    def keys(self, layer, name, inputs, start):
        """Rows that a layer keeps, as they were computed."""
        made = {field: inputs[field] for field in ("latent", "k_rope", "index_k") if field in inputs}
        made["k_rope"] = rotated(made["k_rope"], start, "interleaved")
        if "index_k" in made:
            made["index_k"] = _rotated_key(made["index_k"], start)
        return made

    def commit(self, name, inputs_of_layers, accepted):
        """Keep the first ``accepted`` rows of a step."""
        start = self.committed(name)
        old = self.rows.get(name) or [{} for _ in inputs_of_layers]
        self.rows[name] = [
            {
                field: torch.cat((*([have[field]] if field in have else []), x[:accepted]))
                for field, x in self.keys(layer, name, new, start).items()
            }
            for layer, (have, new) in enumerate(zip(old, inputs_of_layers, strict=True))
        ]

    def sparse_out(self, layer, name, inputs, phase, selected):
        """Attention over the rows ``selected`` [tokens, K], -1 for none."""
        start = self.committed(name)
        made = self.keys(layer, name, inputs, start)
        q_rope = rotated(inputs["q_rope"], start, "interleaved")
        keys = {field: self._as_read(name, layer, field, made[field], start, phase) for field in ("latent", "k_rope")}
        mask = torch.zeros(len(q_rope), start + len(q_rope), dtype=torch.bool)
        for token, positions in enumerate(selected.tolist()):
            mask[token, [position for position in positions if position >= 0]] = True
        return self._mla(layer, {**inputs, "q_rope": q_rope}, keys, mask)

    def _as_read(self, name, layer, field, own, start, phase):
        retain = self.retains[layer]
        old = self.rows[name][layer][field] if start else own[:0]
        rows = torch.cat((old, own))
        low = scratch(stored(rows, retain.low, field), field, retain.low)
        high = stored(rows, retain.high, field)
        is_high = [retain.is_high(p, start) for p in range(start)] + [True] * len(own)
        values = torch.where(torch.tensor(is_high).view(-1, 1, 1), high, low)
        if phase == "context":
            values[start:] = scratch(own, field, retain.low)
        return values.double()

    def check_choice(self, layer, name, inputs, selected):
        """The chosen rows are those of the highest scores: every row is, where there are no more than K."""
        start = self.committed(name)
        made = self.keys(layer, name, inputs, start)["index_k"][:, 0]
        keys = torch.cat((self.rows[name][layer]["index_k"][:, 0], made)) if start else made
        q = _rotated_key(inputs["index_q"], start)
        scores = torch.einsum("thd,ld->htl", q.double(), keys.double()).mul(q.shape[-1] ** -0.5).relu()
        scores = torch.einsum("th,htl->tl", inputs["index_weights"].double(), scores) * q.shape[1] ** -0.5
        for token, positions in enumerate(selected.tolist()):
            seen = scores[token, : start + token + 1]
            count = min(TOP_K, len(seen))
            assert set(positions[count:]) <= {-1} and len(set(positions[:count])) == count
            assert max(positions[:count]) < len(seen) and min(positions[:count]) >= 0
            least, left = seen[positions[:count]].min(), seen.clone()
            left[positions[:count]] = -torch.inf
            assert left.max() <= least + 1e-5


def _rotated_key(x, start):
    return torch.cat((rotated(x[..., :ROTATED_KEY], start, "half"), x[..., ROTATED_KEY:]), -1)
