"""CUDA graphs of the pretended device (:mod:`pretend_device`): what is captured is replayed as CUDA would replay it.

Capturing leaves everything as it was. A replay does the very operations that were captured, from the same memory to the
same memory, with the Python numbers that were handed over when it was captured; generators that the graph knows go on.
What a capture does not allow is refused: a host that waits, copies between host and device, an unknown generator.
"""

from typing import ClassVar

import pretend_device
import torch
from pretend_device import Placed, _unwrapped
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map


class PretendGraphs:
    """In the place of ``CudaGraphs``.

    Attributes:
        made: All of them.
        warmed: Steps that were done where they will be captured.
        captured: Captures that went well.
        replays: How often each of them was replayed.
    """

    made: ClassVar = []

    def __init__(self, device):
        assert device.type == pretend_device.NAME
        self.warmed, self.captured, self.replays = 0, 0, []
        self.made.append(self)

    def warm_up(self, call):
        self.warmed += 1
        return call()

    def capture(self, call, draws):
        states = [one.get_state() for one in draws]
        mode, seen = _Capturing(draws), pretend_device._SEEN
        before = seen.synchronizations, sum(seen.sent.values())
        with mode:
            found = call()
        mode.undo()
        for one, state in zip(draws, states, strict=True):
            one.set_state(state)
        if (seen.synchronizations, sum(seen.sent.values())) != before:
            # In older torch, generators that stood in a capture that broke off draw no more.
            pretend_device._GENERATORS.difference_update(one._cdata for one in draws)
            raise RuntimeError("operation not permitted when stream is capturing\nand more lines")
        number = self.captured
        self.captured += 1
        self.replays.append(0)

        def replay():
            self.replays[number] += 1
            mode.replay()

        return replay, found


class _Capturing(TorchDispatchMode):
    """Writes operations down, and keeps what memory held before they wrote to it."""

    def __init__(self, draws):
        super().__init__()
        self.draws = [one._cdata for one in draws]
        self.done, self.before = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        if generator is not None and generator._cdata not in self.draws:
            raise RuntimeError("a generator that is not registered with the graph")
        for place, declared in enumerate(func._schema.arguments):
            if declared.alias_info is not None and declared.alias_info.is_write:
                written = args[place] if place < len(args) else kwargs.get(declared.name)
                if isinstance(written, Placed):
                    self.before.append((written.held, written.held.clone()))
        out = func(*args, **kwargs)
        given = tree_map(_unwrapped, (args, kwargs))
        known = {_place(x) for x in tree_leaves(given) if isinstance(x, torch.Tensor)}
        self.done.append((func, *given, [_unwrapped(x) for x in tree_leaves(out)], known))
        return out

    def undo(self):
        for held, value in reversed(self.before):
            held.copy_(value)

    def replay(self):
        with torch._C._AutoDispatchBelowAutograd():  # a graph knows memory only
            for func, args, kwargs, results, known in self.done:
                again = tree_leaves(func(*args, **kwargs))
                for result, value in zip(results, again, strict=True):
                    if _place(result) not in known:
                        result.copy_(value)


def _place(held):
    return held.untyped_storage().data_ptr()
