"""A CUDA graph on a processor: what PyTorch computes is recorded, and computed again.

As on a card, what is recorded is not done, tensors that were there then are read and
written again where they lie, random numbers go on, and reading back what was computed is
refused.
"""
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


def tensors(*of): return [t for t in tree_flatten(of)[0] if isinstance(t, torch.Tensor)]


def place(tensor): return tensor.untyped_storage().data_ptr()


class Graph(TorchDispatchMode):
    "Stands in for `torch.cuda.CUDAGraph`."

    def __init__(self):
        super().__init__()
        self.calls, self.made, self.before = [], {}, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.ops.aten._local_scalar_dense.default and place(args[0]) in self.made:
            raise RuntimeError("operation not permitted when stream is capturing")
        if function._schema.is_mutable: self.keep(function, args, kwargs)
        found = function(*args, **kwargs)
        given = {place(t) for t in tensors(args, kwargs)}
        new = [place(t) not in given for t in tensors(found)]
        self.made |= {place(t): t for t, own in zip(tensors(found), new, strict=True) if own}
        self.calls.append((function, args, kwargs, tensors(found), new))
        return found

    def keep(self, function, args, kwargs):
        "What will be written over and was not made in here."
        named = {a.name: v for a, v in zip(function._schema.arguments, args)} | kwargs
        for argument in function._schema.arguments:
            if argument.alias_info is None or not argument.alias_info.is_write: continue
            for t in tensors(named.get(argument.name)):
                if place(t) not in self.made: self.before.setdefault(id(t), (t, t.clone()))

    def undo(self):
        for t, was in self.before.values(): t.copy_(was)

    def replay(self):
        with torch._C._AutoDispatchBelowAutograd(): # where they were recorded
            for function, args, kwargs, kept, new in self.calls:
                found = tensors(function(*args, **kwargs))
                for old, now, own in zip(kept, found, new, strict=True):
                    if own: old.copy_(now)


@contextmanager
def recording(graph, capture_error_mode):
    "Stands in for `torch.cuda.graph`."
    state = torch.get_rng_state()
    try:
        with graph: yield
    finally:
        with torch.no_grad(): graph.undo()
        torch.set_rng_state(state)
