"""A mixed cache in plain tensors: every row that a sequence has, what a step must read of it, and attention in fp64."""

from dataclasses import dataclass, field

import torch

from kvc.encodings import ENCODINGS
from kvc.ops.codecs.table import codec_named

FIELDS = {"gqa": ("k", "v"), "mla": ("latent", "k_rope")}
ROTATED = ("q", "k", "q_rope", "k_rope")


def stored(x, encoding, name):
    """What is left of unrotated or rotated rows once they were stored under the scale 1."""
    codec = codec_named("test", ENCODINGS[encoding].codec_of({"k_rope": "rope"}.get(name, name)))
    one = torch.ones(())
    scale = None if codec.factor is None else torch.stack((one, codec.factor(one)))
    return codec.decode(codec.encode(x, scale), scale)


def rotated(x, start, layout):
    """RoPE with theta 10000 over all features of [T, H, D], the first row at position ``start``."""
    pairs = x.shape[-1] // 2
    # As exact as the op's table: another last bit of a cosine moves a code now and then.
    frequencies = torch.tensor([10000.0 ** -(pair / pairs) for pair in range(pairs)], dtype=torch.float64)
    angles = torch.arange(start, start + len(x), dtype=torch.float64)[:, None] * frequencies
    cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
    if layout == "half":
        left, right = x[..., :pairs], x[..., pairs:]
        return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)
    left, right = x[..., ::2], x[..., 1::2]
    return torch.stack((left * cos - right * sin, right * cos + left * sin), -1).flatten(-2)


@dataclass
class Retention:
    """`retain` of a spec, and the encodings that it makes of a row's two copies."""

    low: str
    high: str
    first: int
    last: int
    unit: str
    page: int

    def is_high(self, position, committed):
        """Whether a committed row is read from the twin: a loop's words, not the ops' arithmetic."""
        if self.unit == "token":
            return position < self.first or position >= committed - self.last
        pages_of_first = {p // self.page for p in range(self.first)}
        if committed <= self.last:
            return True
        return position // self.page in pages_of_first or position // self.page >= (committed - self.last) // self.page


@dataclass
class Model:
    """``retains`` and ``weights`` by layer; ``rows[sequence][layer][field]``: rows as computed, rotated."""

    kind: str
    retains: list
    weights: list
    layout: str
    rows: dict = field(default_factory=dict)

    def committed(self, name):
        """Tokens of a sequence."""
        return len(self.rows[name][0][FIELDS[self.kind][0]]) if self.rows.get(name) else 0

    def out(self, layer, name, inputs, phase):
        """Attention of a sequence's new rows; ``inputs``: input name -> rows."""
        start = self.committed(name)
        made = {n: rotated(x, start, self.layout) if n in ROTATED else x for n, x in inputs.items()}
        keys = {n: self._read(name, layer, n, made[n], start, phase) for n in FIELDS[self.kind]}
        total = start + len(next(iter(made.values())))
        mask = torch.arange(total)[None] <= torch.arange(start, total)[:, None]
        return getattr(self, f"_{self.kind}")(layer, made, keys, mask)

    def commit(self, name, inputs_of_layers, accepted):
        """Keep the first ``accepted`` rows of a step."""
        start = self.committed(name)
        old = self.rows.get(name) or [{} for _ in inputs_of_layers]
        self.rows[name] = [
            {
                n: torch.cat((*([have[n]] if n in have else []), self._made(n, new[n], start)[:accepted]))
                for n in FIELDS[self.kind]
            }
            for have, new in zip(old, inputs_of_layers, strict=True)
        ]

    def _made(self, name, x, start):
        return rotated(x, start, self.layout) if name in ROTATED else x

    def _read(self, name, layer, field_name, own, start, phase):
        """Rows of a field as the step must see them."""
        retain = self.retains[layer]
        old = self.rows[name][layer][field_name] if start else own[:0]
        low, high = (stored(old, encoding, field_name) for encoding in (retain.low, retain.high))
        is_high = torch.tensor([retain.is_high(p, start) for p in range(start)], dtype=torch.bool)
        own = own if phase == "context" else stored(own, retain.high, field_name)
        return torch.cat((torch.where(is_high.view(-1, *[1] * (old.ndim - 1)), high, low), own)).double()

    def _gqa(self, layer, made, keys, mask):
        q = made["q"].double()
        group = q.shape[1] // keys["k"].shape[1]
        k, v = (keys[n].repeat_interleave(group, 1) for n in ("k", "v"))
        scores = torch.einsum("thd,lhd->htl", q, k) * q.shape[-1] ** -0.5
        return torch.einsum("htl,lhv->thv", _softmax(scores, mask), v)

    def _mla(self, layer, made, keys, mask):
        w_uk, w_uv = (w.double() for w in self.weights[layer])
        latent, rope = keys["latent"][:, 0], keys["k_rope"][:, 0]
        q = torch.einsum("thn,hnc->thc", made["q_nope"].double(), w_uk)
        scores = torch.einsum("thc,lc->htl", q, latent) + torch.einsum("thr,lr->htl", made["q_rope"].double(), rope)
        scores = scores * (made["q_nope"].shape[-1] + made["q_rope"].shape[-1]) ** -0.5
        return torch.einsum("htl,lc,hcv->thv", _softmax(scores, mask), latent, w_uv)


def _softmax(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)
