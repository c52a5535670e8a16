"""Latent attention in plain torch, beside the ops: fp64 einsum over the rows that a step reads, or any other dtype."""

from dataclasses import dataclass

import torch

from kvc.ops.codecs import MLA

ops = torch.ops.kvc


def values(x, scale):
    """What an operand stands for in fp64: itself, or its e4m3 codes under a scale, which are made where it has none."""
    if scale is None:
        return x.double()
    codes = x if x.dtype == torch.uint8 else ops.quantize_fp8.default(x, scale)
    return ops.dequantize_fp8.default(codes, scale, dtype=torch.float32).double()


def read_rows(pool, table, lengths, scales, how, dims, dtype):
    """Latent and rope of every sequence, [held rows, dim] a field, and the positions of those rows."""
    sizes = {"fields": list(MLA), "heads": [1, 1], "dims": list(dims)}
    where = {name: how[name] for name in ("encoding", "tokens_per_page")}
    rows = ops.gather_rows.default(pool, table, lengths, list(scales), **sizes, **where, dtype=dtype)
    for b, length in enumerate(lengths.tolist()):
        held = (table[b] >= 0).repeat_interleave(how["tokens_per_page"])[:length]
        yield [x[b, :length, 0][held] for x in rows], held.nonzero().flatten()


@dataclass(frozen=True)
class Keys:
    """What the queries of one sequence attend to: q [n, H, D], k [L, H, D], v [L, H, V], seen bool [n, L]."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    seen: torch.Tensor

    def attend(self, scale, dtype=torch.float64, rounded=lambda weights: weights):
        """Attention apart, in a dtype; probabilities go through ``rounded`` relative to the largest of their row."""
        q, k, v = (x.to(dtype) for x in (self.q, self.k, self.v))
        scores = (torch.einsum("nhd,lhd->hnl", q, k) * scale).masked_fill(~self.seen, -torch.inf)
        probabilities = scores.softmax(-1).masked_fill(~self.seen.any(-1)[:, None], 0)
        most = probabilities.amax(-1, keepdim=True).masked_fill(~self.seen.any(-1)[:, None], 1)
        out = torch.einsum("hnl,lhv->nhv", rounded(probabilities / most) * most, v)
        return out, scores.logsumexp(-1).T


def context_keys(args, how):
    """One `Keys` a sequence of a call of mla_context with V in rows; cached rows expanded and encoded as own ones."""
    q_nope, q_rope, k, v, pool, table, committed, starts, w_uk, w_uv, *scales = args
    q = torch.cat([values(x, scales[2]) for x in (q_nope, q_rope)], -1)
    dims = (w_uk.shape[2], q_rope.shape[2])
    for b, ((latent, rope), _) in enumerate(
        read_rows(pool, table, committed, scales[:2], how, dims, w_uk.dtype),
    ):
        old = ops.expand_mla.default(latent[:, None], rope[:, None], w_uk, w_uv, None, None, None)
        own, n = slice(int(starts[b]), int(starts[b + 1])), int(starts[b + 1] - starts[b])
        keys, vals = (
            torch.cat((values(a, s), values(x[own], s))) for a, x, s in zip(old, (k, v), scales[3:], strict=True)
        )
        seen = torch.cat((torch.ones(n, len(latent)), torch.ones(n, n).tril()), 1).bool()
        yield own, Keys(q[own], keys, vals, seen)


def decode_keys(args, how):
    """One `Keys` a sequence of a call of mla_decode: every head has the same rows."""
    q_latent, q_rope, pool, table, lengths, *scales = args
    q, n = torch.cat((q_latent, q_rope), -1), len(q_latent) // max(1, len(lengths))
    dims = (q_latent.shape[2], q_rope.shape[2])
    for b, ((latent, rope), positions) in enumerate(
        read_rows(pool, table, lengths, scales, how, dims, torch.float32),
    ):
        last = int(lengths[b]) - n + torch.arange(n)
        keys = torch.cat((latent, rope), -1)[:, None].expand(-1, q.shape[1], -1)
        shared = latent[:, None].expand(-1, q.shape[1], -1)
        yield slice(b * n, (b + 1) * n), Keys(q[b * n : (b + 1) * n], keys, shared, positions <= last[:, None])


def exact(call, args, how, **options):
    """out [T, H, V] and lse [T, H] of a whole call, ``call`` one of the two above; padding is 0 and -inf."""
    tokens, heads = args[0].shape[:2]
    width = args[9].shape[2] if call is context_keys else args[0].shape[2]
    dtype = options.get("dtype", torch.float64)
    out = torch.zeros(tokens, heads, width, dtype=dtype)
    lse = torch.full((tokens, heads), -torch.inf, dtype=dtype)
    for own, keys in call(args, how):
        if keys.q.shape[0] and keys.k.shape[0]:
            out[own], lse[own] = keys.attend(how["softmax_scale"], **options)
    return out, lse
