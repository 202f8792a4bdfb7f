"""A pretended accelerator, on which faults of placement show without a GPU.

Inside :func:`pretended`, tensors of the device ``"pretend"`` hold CPU data, and everything is computed on the CPU. What
CUDA would refuse is refused: an operation on tensors of both devices, a generator of the other device. What CUDA would
pay for is counted, with the line of the library that asked for it: synchronizations (the host waits for a number), and
copies from host to device and back. It says nothing of CUDA's kernels, speed or memory.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import xaibench

NAME = "pretend"
_LIBRARY = str(Path(xaibench.__file__).parent)

#: Operations after which the host must wait: it needs a number, or the size of what comes out.
_WAITS = {"_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "_unique2", "unique_dim"}
#: Operations in which CUDA takes CPU tensors beside its own: copies, and indices.
_MIXES = {"copy_", "_copy_from", "_to_copy", "index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
#: Operations that take no CPU tensor beside their own, not even one of a single number.
_STRICT = {"cat", "stack", "bmm", "mm", "index_select", "gather", "scatter", "scatter_", "embedding"}


class WrongPlaceError(RuntimeError):
    """Tensors or generators of two devices met."""


@dataclass
class Seen:
    """What happened on the device.

    Attributes:
        waits: Line of the library -> how often the host waited there for a number.
        sent: Line -> copies from host to device.
        fetched: Line -> copies from device to host, for each of which the host waits too.
        faults: What met of two devices; also where the library survived the error.
        seeded: What the device's generator was seeded with.
    """

    waits: Counter = field(default_factory=Counter)
    sent: Counter = field(default_factory=Counter)
    fetched: Counter = field(default_factory=Counter)
    faults: list = field(default_factory=list)
    seeded: list = field(default_factory=list)

    @property
    def synchronizations(self):
        """How often the host stood still until the device was done."""
        return sum(self.waits.values()) + sum(self.fetched.values())


_SEEN = Seen()
_GENERATORS = set()
_PLAIN_GENERATOR = torch.Generator
_KEPT = []  # what torch needs alive


def available():
    """Whether this torch can pretend: the door for devices written in Python came with 2.9 or so.

    Beside a GPU it cannot: torch takes one accelerator a process, and then no gradient is computed on the other. Hide
    the GPU to run what pretends: ``CUDA_VISIBLE_DEVICES=``.
    """
    if torch.cuda.is_available():
        return False
    with contextlib.suppress(ImportError):
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend  # noqa: F401

        return True
    return False


@contextlib.contextmanager
def pretended():
    """Make the device ``"pretend"`` usable inside the block; yields what is :class:`Seen` there.

    Raises:
        WrongPlaceError: At the end, if tensors or generators of two devices met inside.
    """
    global _SEEN
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    before = (_SEEN, torch.Generator, torch.inference_mode)
    _SEEN = Seen()
    torch.Generator = _Generator
    # A wrapper made in inference mode is an inference tensor even where it views a normal one, which CUDA's is not.
    torch.inference_mode = _no_grad
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # .data of a wrapper keeps what it wraps
    try:
        with _Mode():
            yield _SEEN
        if _SEEN.faults:
            raise WrongPlaceError("; ".join(_SEEN.faults))
    finally:
        _SEEN, torch.Generator, torch.inference_mode = before
        torch.__future__.set_overwrite_module_params_on_conversion(overwrites)


class Placed(torch.Tensor):
    """A tensor of the pretended device; ``held`` is the data."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    def __repr__(self):
        return f"Placed({self.held!r})"

    def tolist(self):
        _SEEN.waits[_line()] += 1
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


def _run(func, args, kwargs):
    flat = [*_leaves(args), *_leaves(kwargs)]
    placed = [x for x in flat if isinstance(x, Placed)]
    wanted = kwargs.get("device")
    if not placed and not _is_pretended(wanted):
        return func(*args, **kwargs)
    name = func._schema.name.split("::")[-1]
    _check_places(name, args, kwargs, flat, placed)
    _count(name, args, flat, placed, wanted)
    wrappers = {id(x.held): x for x in placed}
    args, kwargs = _changed(_unwrapped, args), _changed(_unwrapped, kwargs)
    if "pin_memory" in kwargs:
        kwargs["pin_memory"] = None
    out = func(*args, **kwargs)
    stays = wanted is not None and not _is_pretended(wanted)

    def wrapped(x):
        if not isinstance(x, torch.Tensor) or isinstance(x, Placed) or stays:
            return x
        given = wrappers.get(id(x))  # an operation in place returns the very tensor that it was given
        return Placed(x) if given is None else given

    if name in ("copy_", "_copy_from") and not isinstance(flat[0], Placed):
        return out
    return _changed(wrapped, out)


# Ten times as fast as torch's trees, which know more than the lists, tuples and dicts that operations take and return.
def _leaves(tree):
    if type(tree) not in (list, tuple, dict):
        return [tree]
    return [leaf for branch in (tree.values() if type(tree) is dict else tree) for leaf in _leaves(branch)]


def _changed(change, tree):
    if type(tree) is dict:
        return {name: _changed(change, branch) for name, branch in tree.items()}
    return type(tree)([_changed(change, branch) for branch in tree]) if type(tree) in (list, tuple) else change(tree)


def _check_places(name, args, kwargs, flat, placed):
    plain = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, Placed)]
    if placed and name not in _MIXES:
        met = [x for x in plain if x.ndim > 0 or name in _STRICT]
        if met:
            _refuse(f"{name} of a CPU tensor {[list(x.shape) for x in met]} and one on the device")
    if name in ("index", "_unsafe_index") and not isinstance(args[0], Placed):
        _refuse(f"{name} of a CPU tensor by indices on the device")
    if "index_put" in name:
        values = args[2]
        if not isinstance(args[0], Placed) or (not isinstance(values, Placed) and values.ndim > 0):
            _refuse(f"{name} of tensors on two devices")
    generator = kwargs.get("generator")
    if generator is not None and placed and generator._cdata not in _GENERATORS:
        _refuse(f"{name} on the device with a generator of the CPU")


def _refuse(what):
    _SEEN.faults.append(f"{what}, at {_line()}")
    raise WrongPlaceError(f"Expected all tensors to be on the same device, but found {_SEEN.faults[-1]}.")


def _count(name, args, flat, placed, wanted):
    by_mask = "index" in name and any(isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in _leaves(args[1:2]))
    if name in _WAITS or by_mask:
        _SEEN.waits[_line()] += 1
    plain = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, Placed)]
    if name == "_to_copy" and placed and wanted is not None and not _is_pretended(wanted):
        _SEEN.fetched[_line()] += 1
    elif name == "_to_copy" and not placed:
        _SEEN.sent[_line()] += 1
    elif name in ("copy_", "_copy_from") and plain and placed:
        (_SEEN.sent if isinstance(args[0], Placed) else _SEEN.fetched)[_line()] += 1


def _unwrapped(x):
    if isinstance(x, Placed):
        return x.held
    return torch.device("cpu") if isinstance(x, torch.device) and x.type == NAME else x


def _is_pretended(device):
    return device is not None and torch.device(device).type == NAME


def _line():
    """Where in the library we are."""
    frame = sys._getframe()
    while frame and not frame.f_code.co_filename.startswith(_LIBRARY):
        frame = frame.f_back
    return f"{frame.f_code.co_filename.removeprefix(_LIBRARY)[1:]}:{frame.f_lineno}" if frame else "outside the library"


@contextlib.contextmanager
def _no_grad_or_nothing(mode):
    with torch.no_grad() if mode else contextlib.nullcontext():
        yield


def _no_grad(mode=True):
    return _no_grad_or_nothing(mode)


class _AnyGenerator(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, _PLAIN_GENERATOR)


class _Generator(metaclass=_AnyGenerator):
    """In the place of ``torch.Generator``: of the pretended device it is one of the CPU that is known to be."""

    def __new__(cls, device="cpu"):
        if not _is_pretended(device):
            return _PLAIN_GENERATOR(device)
        made = _PLAIN_GENERATOR()
        _GENERATORS.add(made._cdata)
        _KEPT.append(made)
        return made


class _Device:
    """``torch.pretend``, as ``torch.cuda`` is for CUDA; its generator is a counter of seedings."""

    OutOfMemoryError = torch.cuda.OutOfMemoryError
    _state = torch.arange(16, dtype=torch.uint8)

    def is_initialized(self):
        return True

    def is_available(self):
        return True

    def current_device(self):
        return 0

    def device_count(self):
        return 1

    def _is_in_bad_fork(self):
        return False

    def get_rng_state(self, device=None):
        return self._state.clone()

    def set_rng_state(self, state, device=None):
        type(self)._state = state.clone()

    def manual_seed(self, seed):
        _SEEN.seeded.append(seed)
        type(self)._state = self._state + 1

    manual_seed_all = manual_seed

    def empty_cache(self):
        pass

    def synchronize(self, device=None):
        _SEEN.waits[_line()] += 1

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]

    @contextlib.contextmanager
    def device(self, device):
        yield


def _register():
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, _Device())
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    _KEPT.append(library)


# torch.tensor(data, device=...) and new_tensor work below the modes; these two kernels are all that they need.
def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return Placed(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source, target, non_blocking=False):
    _SEEN.sent[_line()] += 1
    _unwrapped(target).copy_(_unwrapped(source))
    return target


# As this file is imported, which is before the first test of any file: with its first backward pass a process gets
# autograd's threads, one for each device that is known then.
if available():
    _register()
