"""Runs schedules of drafted tokens, step by step or overlapped; a rejected token has other inputs than the true one."""

from dataclasses import dataclass

import torch
from cache_harness import layers, rows
from mixed_caches import spec_text

from kvc.encodings import ENCODINGS, Field, page_layout
from kvc.runtime.batch import Request

FIELDS = {
    "gqa": (("k", "kv_heads", "head_dim"), ("v", "kv_heads", "v_head_dim")),
    "mla": (("latent", None, "kv_lora_rank"), ("rope", None, "qk_rope_head_dim")),
}
DRAFT = "draft: {kind: mtp, layers: 2, max_draft_tokens: 3, encoding: bf16}"


def draft_spec(kind, encoding, retain="", dtype="fp32", page=4, draft=DRAFT):
    """A spec of two layers, and two that draft."""
    return spec_text(kind, encoding, retain, dtype, page, more=draft)


@dataclass(frozen=True)
class Drafted:
    """One request: ``accepted`` of its ``tokens`` are true ones, the others are wrong."""

    name: str
    tokens: int
    phase: str = "generation"
    accepted: int | None = None

    @property
    def true(self):
        return self.tokens if self.accepted is None else self.accepted

    @property
    def request(self):
        return Request(self.name, self.tokens, self.phase)


class Engine:
    """An engine that knows what will be accepted; the cache is told when the schedule says so.

    ``outs``: for each step, sequence -> outputs of its accepted tokens. ``first``: the layer of a larger model whose
    inputs layer 0 takes.
    """

    def __init__(self, cache, first=0):
        self.cache, self.first, self.lengths, self.outs, self.in_flight, self.steps = cache, first, {}, [], None, 0

    def synchronous(self, batch):
        """Every step is over before the next begins."""
        step = self._begin(batch)
        self._forward(step, batch)
        self.cache.commit(step, {one.name: one.true for one in batch})
        self._accept(batch)

    def overlapped(self, batch, late=True):
        """The step before is settled once this one has run, or (``late=False``) before it begins."""
        if not late:
            self.settle()
        step = self._begin(batch)
        self._forward(step, batch)
        self.settle()
        self.cache.accepted.fill_(2**31 - 1)
        self.cache.accepted[: len(batch)] = torch.tensor([one.true for one in batch], dtype=torch.int32)
        self.cache.advance(step)
        self.in_flight = step, {one.name: one.true for one in batch if one.phase == "generation"}
        self._accept(batch)

    def settle(self):
        """Tell the host what the step in flight accepted."""
        if self.in_flight:
            self.cache.settle(*self.in_flight)
        self.in_flight = None

    def _begin(self, batch):
        for one in batch:
            if one.name not in self.cache.manager.sequences:
                self.cache.admit(one.name)
        return self.cache.begin([one.request for one in batch])

    def _forward(self, step, batch):
        expected = [self.lengths.get(one.name, 0) + i for one in batch for i in range(one.tokens)]
        assert self.cache.positions().tolist() == expected
        outs = [self.cache.layer(layer, *self.inputs(layer, batch)) for layer in layers(self.cache)]
        places = step.rows
        self.outs.append({one.name: [out[places[one.name]][: one.true] for out in outs] for one in batch})

    def inputs(self, layer, batch):
        """The inputs of a layer: by position those of true tokens, by step too those of wrong ones."""
        parts = [self._inputs_of(layer, one) for one in batch]
        return [torch.cat(x) for x in zip(*parts, strict=True)]

    def _inputs_of(self, layer, one):
        start, wrong = self.lengths.get(one.name, 0), f"{one.name} wrong in {self.steps}"
        parts = (
            rows(self.cache, one.name, layer, start, one.true, self.first),
            rows(self.cache, wrong, layer, start + one.true, one.tokens - one.true, self.first),
        )
        return [torch.cat(x) for x in zip(*parts, strict=True)]

    def _accept(self, batch):
        self.steps += 1
        for one in batch:
            self.lengths[one.name] = self.lengths.get(one.name, 0) + one.true


def held(cache):
    """Sequence -> lifecycle -> the pages that it has."""
    names = sorted(cache.manager.sequences)
    tables = cache.manager.slot_tables(names)
    return {name: [row.nonzero()[0].tolist() for row in tables[:, i] >= 0] for i, name in enumerate(names)}


def committed_rows(cache, sequence, role):
    """Layer -> page -> bytes of a sequence's committed rows there, over the pages that it holds."""
    found = {}
    for layer in layers(cache):
        if role in cache.program.bindings[layer].pools:
            found[layer] = _pages(cache, sequence, layer, *cache.program.bindings[layer].pools[role])
    return found


def _pages(cache, sequence, layer, pool_id, index):
    pool, length = cache.plan.pools[pool_id], cache.manager.committed(sequence)
    size = cache.plan.lifecycles[pool.lifecycle].tokens_per_page
    group = next(g for g in cache.plan.layer_groups if g.pool == pool_id and layer in g.layers)
    shape = cache.program.signatures[cache.program.bindings[layer].signature]["shape"]
    fields = tuple(Field(name, shape.get(heads, 1), shape[dim]) for name, heads, dim in FIELDS[shape["kind"]])
    planes = page_layout(ENCODINGS[group.encoding], fields, size).planes
    view, slots = cache.pools.view(pool_id, index), cache.manager.slot_tables([sequence])[pool.lifecycle, 0]
    return {
        page: _rows(view[slot * pool.pages_per_slot], planes, size, length - page * size)
        for page, slot in enumerate(slots.tolist())
        if slot >= 0
    }


def _rows(page, planes, size, count):
    """The first rows of a page, plane by plane: bytes of rejected tokens and of rounding are left out."""
    parts = []
    for plane in planes:
        data = page[plane.offset : plane.offset + plane.heads * size * plane.row_bytes]
        parts.append(data.view(plane.heads, size, plane.row_bytes)[:, :count].flatten())
    return torch.cat(parts)
