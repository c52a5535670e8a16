"""How much of a chat service's prompts need not be computed: one system prompt, 24 users, two turns each.

Only the page manager runs, on the plans of one model with and without a twin; nothing is computed.
"""

from kvc.plan.planner import make_plan
from kvc.runtime.cache_manager import CacheManager, Limits
from kvc.specs import load_spec_text

SPEC = """
kvc: 1
name: chat
model:
  dtype: bf16
  max_position: 4096
  layers: [{kind: gqa, repeat: 32, heads: 32, kv_heads: 8, head_dim: 128, rope: {kind: default, theta: 500000}}]
cache: {encoding: nvfp4, scales: {source: unit}, tokens_per_page: 16RETAIN}
target: {device: cpu, max_sequences: 8, max_seq_len: 4096, max_tokens: 512, buckets: [1, 8]}
"""
TWIN = ", retain: {first: 64, last: 256, encoding: bf16}"
SYSTEM = list(range(1500))


def manager(retain: str) -> CacheManager:
    """Room for 40,000 tokens a pool group."""
    plan = make_plan(load_spec_text(SPEC.replace("RETAIN", retain)))
    return CacheManager(plan.lifecycles, [2500] * len(plan.pool_groups), Limits(8, 4096, 512))


def serve(pages: CacheManager, prompt: list[int], answer: list[int], cut: int) -> None:
    """Compute a prompt in chunks of at most 512 tokens, none over ``cut``, then an answer token by token."""
    pages.admit("chat")
    at = pages.reuse("chat", prompt).tokens
    while at < len(prompt):
        stop = min(at + 512, len(prompt), cut if at < cut else len(prompt))
        pages.extend({"chat": stop - at})
        pages.commit({"chat": stop - at})
        at = stop
    for token in answer:
        pages.record_tokens("chat", [token])
        pages.extend({"chat": 1})
        pages.commit({"chat": 1})
    pages.release("chat")


def report(title: str, retain: str, cut: int) -> None:
    """Two rounds over all users; a user's second prompt starts with all of the first round."""
    pages, chats = manager(retain), {user: list(SYSTEM) for user in range(24)}
    for turn in range(2):
        for user, chat in chats.items():
            new = [10_000 * (user + 1) + 1000 * turn + at for at in range(180)]
            serve(pages, chat + new[:100], new[100:], cut)
            chat += new
    print(f"{title:36}{pages.prefix_statistics()}")


report("nvfp4", "", cut=0)
report("nvfp4 + bf16", TWIN, cut=0)
report("nvfp4 + bf16, a step ends at 1,488", TWIN, cut=1488)
