"""Lend a network to an explainer or a metric, and copy it: it stays as it was given.

One thread at a time has a network. Explaining changes it (hooks, modes, ``requires_grad``) until it is returned, so
other threads that lend or copy it, or a network with which it shares modules, wait meanwhile.

A network that modifies its input in place, for example by ``x.sub_(0.5)``, gets copies. Otherwise the next pass, the
next explainer and the caller would silently continue with changed images.
"""

from __future__ import annotations

import copy
import itertools
import threading
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter, is_, itemgetter
from typing import Any, TypeVar, cast

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin

from xaibench.core.messages import first_line
from xaibench.core.process_settings import SharedSetting
from xaibench.network.calls import describe_layer
from xaibench.tensors.batching import is_out_of_memory

_M = TypeVar("_M", bound=nn.Module)

#: Networks that are known to modify their input.
_writers: weakref.WeakSet[Any] = weakref.WeakSet()

#: Networks by their copies.
_originals: weakref.WeakKeyDictionary[nn.Module, weakref.ref[nn.Module]] = weakref.WeakKeyDictionary()

#: The lock of each module, with its number. Modules of one network have the same lock, unless some of them were lent
#: as part of another network first. Lending acquires all of them, in the order of their numbers.
_locks: weakref.WeakKeyDictionary[nn.Module, tuple[int, threading.RLock]] = weakref.WeakKeyDictionary()
_guard, _numbers = threading.Lock(), itertools.count()

#: Types of the attributes whose content is restored. Subclasses may forbid changes (the outputs of transformers).
_CONTAINERS = frozenset((dict, OrderedDict, defaultdict, list, set))


@contextmanager
def lock_network(model: object) -> Iterator[None]:
    """Let other threads that lend or copy a network wait until the end of the block; blocks can be nested.

    Args:
        model: A module. Networks with common modules, such as a network and a wrapper of it, wait for each other. Other
            callables are not locked.
    """
    with ExitStack() as held:
        if isinstance(model, nn.Module):
            modules = list(model.modules())
            with _guard:
                found = set(filter(None, map(_locks.get, modules)))
                locks = sorted(found, key=itemgetter(0)) or [(next(_numbers), threading.RLock())]
                for module in modules:
                    _locks.setdefault(module, locks[0])
            for _, reentrant in locks:
                held.enter_context(reentrant)
        yield


@contextmanager
def evaluation_mode(model: object) -> Iterator[None]:
    """Put a model into evaluation mode inside the block and restore the mode of every submodule after it.

    Args:
        model: A module; other threads that lend it wait. Other callables have no mode and are left alone.

    Example:
        >>> model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
        >>> with evaluation_mode(model):
        ...     print([module.training for module in model])
        [False, False]
        >>> [module.training for module in model]
        [True, False]
    """
    with lock_network(model):
        modules = list(model.modules()) if isinstance(model, nn.Module) else []
        modes = list(map(attrgetter("training"), modules))
        try:
            if isinstance(model, nn.Module):
                set_evaluation(model)
            yield
        finally:
            for module, training in zip(modules, modes, strict=True):
                module.training = training


def set_evaluation(model: _M) -> _M:
    """Put a module into evaluation mode and return it.

    Modules of ``torch.export`` do not implement ``eval``: they compute what was exported. Only their flag is set.

    Args:
        model: The module.

    Returns:
        The module.
    """
    try:
        return model.eval()
    except NotImplementedError:
        for child in model.children():
            set_evaluation(child)
        model.training = False
        return model


@contextmanager
def restore_model_state(model: nn.Module) -> Iterator[nn.Module]:
    """Lend a model to an explainer, in evaluation mode and with frozen parameters, and restore its state afterwards.

    Compiled layers are replaced by the original ones inside, since compiled code hides its operations, and gradient
    checkpoints are called without checkpointing, since they run a part of the network twice. Other threads that lend
    the model wait (:func:`lock_network`).

    Restored, even if the explainer raises: the training mode of every submodule, hooks and other attributes (Captum
    leaves some of both) with the content of dictionaries, lists and sets, ``requires_grad`` and ``grad`` of the
    parameters, and the buffers. Only the buffers are copied. Gradients are enabled inside, regardless of the caller's
    mode. Weights that were made in inference mode cannot be frozen and have no gradients; explainers get a copy with
    ordinary ones (:func:`place_network`).

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 2)
        >>> with restore_model_state(model) as lent:
        ...     print(lent.training, lent.weight.requires_grad)
        False False
        >>> model.training, model.weight.requires_grad
        (True, True)
    """
    with lock_network(model), plain_checkpoints(), restored_buffers(model):
        modules = list(model.modules())
        # Hooks, parameters, buffers and submodules are in dicts that others hold references to (hook handles,
        # optimizers), so their content is restored in place.
        contents = [(c, (dict(c) if isinstance(c, dict) else c.copy()) if c else ()) for c in _containers(modules)]
        parameters = [(p, p.requires_grad, p.grad) for p in model.parameters() if not p.is_inference()]
        try:
            set_evaluation(model)
            for module in modules:
                if getattr(module, "_compiled_call_impl", None) is not None:
                    module._compiled_call_impl = None
                for name, child in module._modules.items():
                    original = getattr(child, "_orig_mod", None)
                    if isinstance(original, nn.Module):
                        module._modules[name] = original
            for parameter, _, _ in parameters:
                parameter.requires_grad_(False)
            with torch.inference_mode(False), torch.enable_grad():
                yield model
        finally:
            for container, content in contents:
                if container or content:
                    _restore_content(container, content)
            with torch.inference_mode(False), torch.no_grad():
                for parameter, requires_grad, grad in parameters:
                    parameter.requires_grad_(requires_grad)
                    parameter.grad = grad


@contextmanager
def restored_buffers(model: object) -> Iterator[None]:
    """Restore the buffers of a module after the block, even if it raises; other callables have none."""
    found = model.buffers() if isinstance(model, nn.Module) else ()
    buffers = [(buffer, buffer.detach().clone()) for buffer in found if not buffer.is_inference()]
    try:
        yield
    finally:
        with torch.inference_mode(False), torch.no_grad():
            for buffer, value in buffers:
                # By way of .data, which leaves the version as it is: an unchanged network is recognized by it.
                buffer.data.copy_(value)


def _containers(modules: Iterable[nn.Module]) -> list[Any]:
    """Return the dictionaries, lists and sets among the attributes of modules, with those inside of them."""
    found: dict[int, Any] = {}
    waiting: list[Any] = list(map(vars, modules))
    while waiting:
        container = waiting.pop()
        if id(container) not in found:
            found[id(container)] = container
            for value in container.values() if isinstance(container, dict) else container:
                if type(value) in _CONTAINERS:
                    waiting.append(value)
    return list(found.values())


def _values(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _restore_content(container: Any, content: Any) -> None:
    """Restore a container; what has not changed stays in it, since other threads may read it without a lock."""
    is_same = len(container) == len(content) and all(map(is_, container, content))
    if is_same and all(map(is_, _values(container), _values(content))):
        return
    if isinstance(container, dict):
        for key in set(container).difference(content):  # an empty dictionary was kept as ()
            del container[key]
        container.update(content)
        if not all(map(is_, container, content)):  # in another order
            container.clear()
            container.update(content)
    elif isinstance(container, list):
        container[:] = content
    else:
        container.clear()
        container.update(content)


def check_initialized(network: object) -> None:
    """Check that a network has all its weights.

    Args:
        network: A module; other callables are not checked.

    Raises:
        ValueError: If a layer is lazy and was never called, or its weights are on the device meta; the message names
            it.
    """
    for name, module in network.named_modules() if isinstance(network, nn.Module) else ():
        if isinstance(module, LazyModuleMixin) and cast(Any, module).has_uninitialized_params():
            raise ValueError(
                f"The weights of {describe_layer(name, cast(nn.Module, module))} are not initialized. "
                "Call the network once with images, and load its weights or train it."
            )
        if any(map(attrgetter("is_meta"), (*module.parameters(recurse=False), *module.buffers(recurse=False)))):
            raise ValueError(
                f"Weights of {describe_layer(name, module)} are on the device meta, which has no values. Load them: "
                "network.to_empty(device='cpu'), then network.load_state_dict(state)."
            )


def place_network(network: nn.Module, device: torch.device | None, dtype: torch.dtype | None = None) -> nn.Module:
    """Return a network itself if it is on a device and of a data type, otherwise a copy that is (:func:`copy_network`).

    Args:
        network: A network; never moved. One with weights that were made in inference mode is copied, too.
        device: The device, with its index; None = any.
        dtype: The data type of floating-point numbers; None = any.

    Returns:
        The network or the copy.

    Raises:
        ValueError: If a layer is lazy and its weights are not initialized.
    """
    check_initialized(network)
    for tensor in (*network.parameters(), *network.buffers()):
        if device not in (None, tensor.device) or tensor.dtype != _same_kind(tensor, dtype) or tensor.is_inference():
            return copy_network(network, device, dtype)
    return network


def copy_network(network: nn.Module, device: torch.device | None = None, dtype: torch.dtype | None = None) -> nn.Module:
    """Copy a network as its user has it, not as it is lent in another thread.

    Weights made in inference mode become ordinary ones, and attributes that an operation has computed (the weights of
    the older ``weight_norm`` and ``spectral_norm``) are copied without their graph. Tied weights stay tied.

    Args:
        network: A network. ``nn.DataParallel`` gives a copy of the module in it.
        device: Where the copy is; None = where the network is.
        dtype: The data type of floating-point numbers in the copy; complex numbers get the complex type of this
            precision, and integers remain as they are. None = unchanged.

    Returns:
        The copy, in the same mode.

    Raises:
        TypeError: If a module cannot be copied; the message names it.

    Example:
        >>> layer = nn.utils.weight_norm(nn.Linear(2, 2))
        >>> copy_network(layer, dtype=torch.float64).weight_v.dtype
        torch.float64
    """
    original = original_of(network)
    if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
        network = network.module
    with lock_network(network), torch.inference_mode(False), torch.no_grad():
        memo: dict[int, Any] = {}
        for container in _containers(network.modules()):
            for value in _values(container):
                if isinstance(value, Tensor) and (value.grad_fn is not None or value.is_inference()):
                    clone = value.detach().clone()
                    is_parameter = isinstance(value, nn.Parameter)
                    memo[id(value)] = nn.Parameter(clone, value.requires_grad) if is_parameter else clone
        try:
            copied = copy.deepcopy(network, dict(memo))
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise TypeError(_why_not_copied(network, memo, error)) from error

        def place(tensor: Tensor) -> Tensor:
            return tensor.to(device, _same_kind(tensor, dtype))

        if device is not None or dtype is not None:
            copied._apply(place)  # type: ignore[no-untyped-call]
            for module in copied.modules():  # tensors that are neither parameters nor buffers
                for name, value in vars(module).items():
                    if isinstance(value, Tensor):
                        vars(module)[name] = place(value)
        _originals[copied] = weakref.ref(original)
        return copied


def original_of(network: nn.Module) -> nn.Module:
    """Return the network that a network was copied from (:func:`copy_network`); itself if there is none.

    Args:
        network: A network.

    Returns:
        The first of a chain of copies, as long as it exists.
    """
    reference = _originals.get(network)
    original = None if reference is None else reference()
    return network if original is None else original


def _same_kind(tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Return the data type of a tensor in the precision of another floating-point type."""
    if dtype is None or not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor.dtype
    return dtype if tensor.is_floating_point() else torch.promote_types(dtype, torch.complex32)


def _why_not_copied(network: nn.Module, memo: dict[int, Any], error: Exception) -> str:
    place = type(network).__name__
    for name, module in network.named_modules():
        own = {key: value for key, value in vars(module).items() if key != "_modules"}
        try:
            copy.deepcopy(own, dict(memo))
        except Exception:
            place = describe_layer(name, module)
            break
    return (
        f"The network cannot be copied, because of {place}: {first_line(error)}. Copies are needed for another device "
        "or precision, and to randomize or train weights. Keep such objects out of the module's attributes, or define "
        "__deepcopy__. explain needs no copy on the device and in the precision of the network."
    )


class _Lending(threading.local):
    """Whether gradient checkpoints are called plainly in this thread: the number of open blocks."""

    depth = 0


_lending = _Lending()


def _apply_plainly(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
    return function(*args) if _lending.depth else _CHECKPOINTED(function, preserve, *args)


def _without_recomputation(original: Callable[..., Iterator[None]]) -> Callable[..., Iterator[None]]:
    # Torch calls the function between the first and the second step of this generator.
    def generate(*args: Any, **kwargs: Any) -> Iterator[None]:
        if _lending.depth:
            yield
        else:
            yield from original(*args, **kwargs)

    return generate


_torch_checkpoints: Any = torch.utils.checkpoint
_CHECKPOINTED = _torch_checkpoints.CheckpointFunction.apply
#: Implementations of checkpoints without reentrance, of older and newer versions of torch, and their replacements.
_GENERATORS = {
    name: (getattr(_torch_checkpoints, name), _without_recomputation(getattr(_torch_checkpoints, name)))
    for name in ("_checkpoint_without_reentrant_generator", "_checkpoint_without_reentrant_generator_impl")
    if hasattr(_torch_checkpoints, name)
}


def _patch_checkpoints() -> Callable[[], None]:
    _torch_checkpoints.CheckpointFunction.apply = staticmethod(_apply_plainly)
    for name, (_, plain) in _GENERATORS.items():
        setattr(_torch_checkpoints, name, plain)
    return _restore_checkpoints


def _restore_checkpoints() -> None:
    del _torch_checkpoints.CheckpointFunction.apply
    for name, (original, _) in _GENERATORS.items():
        setattr(_torch_checkpoints, name, original)


_patched = SharedSetting(_patch_checkpoints)


@contextmanager
def plain_checkpoints() -> Iterator[None]:
    """Call functions that are given to ``torch.utils.checkpoint`` plainly inside the block, in this thread only."""
    with _patched:
        _lending.depth += 1
        try:
            yield
        finally:
            _lending.depth -= 1


def remember_writer(model: object) -> None:
    """Record that a model modifies its input; :func:`.outputs.probe` detects this."""
    _writers.add(model)


def writes_input(model: object) -> bool:
    """Return whether a model is known to modify its input."""
    return model in _writers


@contextmanager
def protect_input(model: nn.Module) -> Iterator[None]:
    """Give copies of the input to a model that is known to modify its input, inside the block.

    Gradients pass through the copy unchanged.

    Example:
        >>> import torch
        >>> from xaibench.network.outputs import probe
        >>> class Centered(nn.Module):
        ...     def forward(self, images):
        ...         return images.sub_(0.5).flatten(1)
        >>> model, images = Centered(), torch.ones(1, 1, 1, 2)
        >>> _ = probe(model, images)
        >>> with protect_input(model):
        ...     _ = model(images)
        >>> images.flatten().tolist()
        [1.0, 1.0]
    """
    if model not in _writers:
        yield
        return
    handle = model.register_forward_pre_hook(_copy_inputs)
    try:
        yield
    finally:
        handle.remove()


def _copy_inputs(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.clone() if isinstance(one, Tensor) else one for one in given)
