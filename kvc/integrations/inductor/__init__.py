"""The rewrites of kvc's compiler for functions that others compile with `torch.compile`.

```python
rewrites = Rewrites()
step = torch.compile(step, options=rewrites.options())
...
print(rewrites)        # what fired and, where something did not, why
```

The function calls `torch.ops.kvc.<op>.default`. After autograd and functionalization, before inductor makes code, the
rules of `compiler_passes` run on its graph: RoPE, encoding and store become one op, with the same bits as before.
"""

from kvc.integrations.inductor.rewrites import RULES, Rewrites, RewrittenGraph

__all__ = ["RULES", "Rewrites", "RewrittenGraph"]
