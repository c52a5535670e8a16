"""The private hooks of torch, one test each; those of transformers are in test_compat.py."""

import torch

from kvc.compat import DispatchMode, leaves, storage_id


def test_dispatch_mode_sees_ops_once_and_not_those_inside_it() -> None:
    seen = []

    class Mode(DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with Mode():
        y = x + x
    assert seen == [torch.ops.aten.add.Tensor] and y.tolist() == [2, 2]


def test_leaves_of_any_nesting() -> None:
    x, y = torch.ones(1), torch.ones(2)
    found = leaves({"a": [x, (None, 3)], "b": y})
    assert len(found) == 4 and found[0] is x and found[1:3] == [None, 3] and found[3] is y


def test_storage_id_is_that_of_all_views_and_of_no_other_tensor() -> None:
    x, empty, other = torch.zeros(4), torch.empty(0), torch.empty(0)
    assert storage_id(x) == storage_id(x[1:].view(3, 1)) == storage_id(x.detach())
    kept = [x, x.clone(), empty, other]  # an id is free again once its tensor is gone
    assert len(set(map(storage_id, kept))) == 4
