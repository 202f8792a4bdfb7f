"""Open ONNX and TorchScript files as networks with gradients that take images ``[N, C, H, W]``.

The library onnx2torch makes a layer of each operation. The input is then adapted as the file states it (channels last,
without channels, integers, half precision), and dense layers become ``nn.Linear``. A TorchScript file is a program; it
is opened after a look at the operators that it calls.
"""

from __future__ import annotations

import importlib
import operator
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from xaibench.core.messages import first_line, warn_caller
from xaibench.models.opening.sources import Preprocessing, Request, Source, import_extra

#: Types of the input that are accepted, and the value of a white pixel.
_WHITE = {"float": 1.0, "float16": 1.0, "double": 1.0, "uint8": 255.0, "int32": 255.0, "int64": 255.0}

#: Operations that leave the order of the axes as it is.
_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Cast", "Clip", "Identity", "Pad", "Resize")


def open_onnx(file: Path, request: Request) -> Source:
    """Open an ONNX file whose only input is an image, with the channels where the file has them.

    Raises:
        ValueError: If the file cannot be read, has an input that is not an image, or is for images of another size.
        ModuleNotFoundError: If onnx2torch is missing; names the command.
    """
    library = import_extra("onnx2torch", "onnx", "ONNX files")
    graph = _read_graph(file)
    stated = _find_input(file, graph)
    shape, kind = _describe_input(stated)
    if kind not in _WHITE:
        raise ValueError(
            f"{file}: its input {stated.name!r} is of type {kind}, expected one of {', '.join(_WHITE)}. Export the "
            "network with an input of float32, or pass a module that converts the images as 'file.py:name'."
        )
    if len(shape) not in (0, 3, 4, 5):
        raise ValueError(
            f"{file}: its input {stated.name!r} has the shape {_show(shape)}, expected images [N, C, H, W] or "
            "[N, H, W, C], gray images [N, H, W], or volumes. Pass a module that makes it of images as 'file.py:name'."
        )
    last, channels = _find_channels(graph, stated.name, shape)
    sides = shape[1:] if len(shape) == 3 else shape[1:-1] if last else shape[2:]
    size = tuple(side for side in sides if side is not None)
    known = len(size) == len(sides) > 0
    if known and request.size is not None and set(request.size) != set(size):  # a side of volumes comes twice
        raise ValueError(
            f"{file} is for images of {' × '.join(map(str, size))} pixels: its input is {_show(shape)}, got "
            f"size={request.size}. Leave out the size, or export the network with dynamic axes."
        )
    try:
        network: fx.GraphModule = library.convert(str(file))
    except Exception as error:  # an operation that it does not know, or one of many errors of its own
        raise ValueError(
            f"{file}: onnx2torch, which makes differentiable layers of it, cannot convert it: {first_line(error)}."
        ) from error
    constants = _constants(network)
    _simplify_reshapes(network, constants, shape[0] if shape else None)
    _make_linear_layers(network, constants)
    _adapt_input(network, _WHITE[kind], range(2, len(shape)) if last else None, drop=len(shape) == 3)
    if any(tensor.dtype == torch.float16 for tensor in network.state_dict().values()):
        network.float()
        layers: Any = network.modules()
        for layer in layers:
            if getattr(layer, "torch_dtype", None) == torch.float16:  # of a cast
                layer.torch_dtype = torch.float32
    network.recompile()
    scale = None if _WHITE[kind] == 1 else (channels or 3)
    preprocessing = Preprocessing(
        size=size,
        mean=None if scale is None else (0.0,) * scale,
        std=None if scale is None else (1 / 255,) * scale,
    )
    hint = f" The file states an input of {_show(shape)}; export it with a dynamic first axis if that is a number."
    return Source(network, channels, preprocessing if known or scale else None, hint=hint)


def _read_graph(file: Path) -> Any:
    load, protobuf = importlib.import_module("onnx").load, importlib.import_module("google.protobuf.message")
    try:
        return load(str(file), load_external_data=False).graph
    except protobuf.DecodeError as error:
        raise ValueError(f"{file} is not an ONNX file ({first_line(error)}).") from error


def _find_input(file: Path, graph: Any) -> Any:
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    if len(inputs) != 1:
        raise ValueError(
            f"{file} has {len(inputs)} inputs ({', '.join(value.name for value in inputs)}), expected one, the image. "
            "Pass a module that gives the others as 'file.py:name'."
        )
    return inputs[0]


def _describe_input(value: Any) -> tuple[tuple[int | None, ...], str]:
    """Return shape and element type of an input; None for a dimension of any length, ``()`` for an unknown shape."""
    tensor = value.type.tensor_type
    shape = tuple(axis.dim_value if axis.dim_value > 0 else None for axis in tensor.shape.dim)
    kinds = importlib.import_module("onnx").TensorProto.DataType
    return shape, kinds.Name(tensor.elem_type).lower()


def _show(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('any' if side is None else str(side) for side in shape)}]"


def _find_channels(graph: Any, name: str, shape: tuple[int | None, ...]) -> tuple[bool, int | None]:
    """Return whether the channels are the last axis, and their number if it is known.

    The operation that the image reaches first decides: a convolution takes channels first, and exporters of networks
    with channels last transpose before it. Otherwise the axis of at most four entries has the channels.
    """
    rank = len(shape)
    if rank < 4:
        return False, 1 if rank == 3 else None
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    names = {name}
    for node in graph.node:  # in the order of the computation
        if node.input[:1] and node.input[0] in names:
            order = next((tuple(entry.ints) for entry in node.attribute if entry.name == "perm"), None)
            if node.op_type == "Transpose" and order == (0, rank - 1, *range(1, rank - 1)):
                return True, shape[-1]
            if node.op_type == "Conv":
                groups = next((entry.i for entry in node.attribute if entry.name == "group"), 1)
                kernel = weights.get(node.input[1])
                return False, kernel[1] * groups if kernel else shape[1]
            if node.op_type in _ELEMENTWISE:
                names |= set(node.output)
    few = (1, 2, 3, 4)
    last = shape[-1] in few and shape[1] not in few
    return last, shape[-1] if last else shape[1]


def _layer(network: fx.GraphModule, node: Any, kind: str) -> Any:
    """Return the layer that a node calls if its class has that name, otherwise None."""
    layer = network.get_submodule(node.target) if node.op == "call_module" else None
    return layer if type(layer).__name__ == kind else None


def _constants(network: fx.GraphModule) -> dict[Any, Any]:
    """Return the values of the nodes that do not depend on the image."""
    values: dict[Any, Any] = {}
    for node in network.graph.nodes:
        if node.op == "get_attr":
            values[node] = operator.attrgetter(node.target)(network)
        elif node.op == "call_module" and all(source in values for source in node.all_input_nodes):
            arguments = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = network.get_submodule(node.target)(*arguments[0], **arguments[1])
    return values


def _simplify_reshapes(network: fx.GraphModule, constants: dict[Any, Any], batch: int | None) -> None:
    """Call ``reshape`` where the shape is constant; of a graph for a fixed number of images, so that it takes any."""
    for node in list(network.graph.nodes):
        if _layer(network, node, "OnnxReshape") and node.args[0] not in constants and node.args[1] in constants:
            x, shape = node.args[0], constants[node.args[1]].tolist()
            with network.graph.inserting_before(node):
                sides = [
                    network.graph.call_method("size", (x, axis)) if side == 0 or (axis == 0 and side == batch) else side
                    for axis, side in enumerate(shape)
                ]
                node.replace_all_uses_with(network.graph.call_method("reshape", (x, *sides)))
            network.graph.erase_node(node)


def _make_linear_layers(network: fx.GraphModule, constants: dict[Any, Any]) -> None:
    """Replace products with a constant matrix, and the addition of a constant that follows, by ``nn.Linear``."""
    for node in list(network.graph.nodes):
        product, gemm = _layer(network, node, "OnnxMatMul"), _layer(network, node, "OnnxGemm")
        if not (product or (gemm and not gemm.trans_a)) or node.args[0] in constants:
            continue
        weight = constants.get(node.args[1])
        if weight is None or weight.ndim != 2:
            continue
        weight, bias, end = weight if gemm and gemm.trans_b else weight.T, None, node
        if gemm:
            weight = weight * gemm.alpha
            if len(node.args) > 2:
                bias = constants.get(node.args[2])
                if bias is None or bias.numel() != len(weight):
                    continue
                bias = bias * gemm.beta
        elif len(node.users) == 1 and (found := _added_constant(network, constants, node, len(weight))) is not None:
            (end,), bias = node.users, found
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
        layer.weight = nn.Parameter(weight.clone())
        if bias is not None:
            layer.bias = nn.Parameter(bias.reshape(-1).clone())
        network.add_submodule(node.target, layer)
        node.args = node.args[:1]
        if end is not node:
            end.replace_all_uses_with(node)
            network.graph.erase_node(end)
    for node in [node for node in network.graph.nodes if node in constants][::-1]:
        if not node.users:
            network.graph.erase_node(node)
    network.delete_all_unused_submodules()
    used = {node.target for node in network.graph.nodes if node.op == "get_attr"}
    for name, _ in list(network.named_buffers()):
        owner, _, buffer = name.rpartition(".")
        if owner == "initializers" and name not in used:
            delattr(network.initializers, buffer)


def _added_constant(network: fx.GraphModule, constants: dict[Any, Any], node: Any, outputs: int) -> Tensor | None:
    """Return the constant that is added to the result of a node, if it is one number per output."""
    (user,) = node.users
    addition = _layer(network, user, "OnnxBinaryMathOperation")
    if addition is None or addition.math_op_function is not torch.add or addition.axis is not None:
        return None
    added: Tensor | None = constants.get(user.args[1 if user.args[0] is node else 0])
    is_bias = added is not None and added.numel() == outputs and added.shape[-1:] == (outputs,)
    return added if is_bias else None


def _adapt_input(network: fx.GraphModule, white: float, last: range | None, *, drop: bool) -> None:
    """Insert what makes the input of the file from images ``[N, C, H, W]`` in [0, 1]."""
    graph = network.graph
    image = next(node for node in graph.nodes if node.op == "placeholder")
    users, x = list(image.users), image
    with graph.inserting_before(image.next):
        if white != 1:
            x = graph.call_function(operator.mul, (x, white))
        if last is not None:
            x = graph.call_method("permute", (x, 0, *last, 1))
        if drop:
            x = graph.call_method("squeeze", (x, 1))
    for user in users:
        user.replace_input_with(image, x)


#: Namespaces of operators that only compute. Others belong to extensions, which can do anything.
_COMPUTING = "aten|prim|prims|quantized|torchvision|sparse|mkldnn|mkldnn_prepacked|prepacked|xnnpack"

#: White space and comments, which may separate the parts of a name.
_GAP = r"(?:[\s\\]|#[^\n]*)*"

#: Names by which a program reads or writes files, or calls other machines; ``ops`` and ``classes`` of an extension.
_UNSAFE = re.compile(
    rf"\b(?:from_file|rpc_async|rpc_sync|rpc_remote|PythonOp)\b|\.{_GAP}save\b"
    rf"|(?<![.\w])ops\b(?!{_GAP}\.{_GAP}(?:{_COMPUTING})\b)(?:\.\w+)*"
    r"|torch\.classes\.(?!(?:quantized|rnn|sparse|xnnpack)\b)[\w.]+"
)


def open_torchscript(file: Path) -> Source:
    """Load a TorchScript file whose program only computes.

    Loading runs methods that restore the state of modules, so the program is read before.

    Raises:
        ValueError: If it is another kind of file, or calls an operator that can do more than compute; names it.
    """
    programs = _read_programs(file)
    if not programs:
        raise ValueError(
            f"{file} is no TorchScript file. A pickled module or an exported program is not read, since a pickle could "
            "run any code, and weights alone name no architecture. Write a file net.py with a function that builds the "
            "network and loads the weights (torch.load(file, weights_only=True)), and pass 'net.py:function'; or save "
            "torch.jit.trace(network, image)."
        )
    unsafe = sorted(
        {re.sub(_GAP, "", found.group()).lstrip(".") for text in programs for found in _UNSAFE.finditer(text)}
    )
    if unsafe:
        raise ValueError(
            f"{file} is a program that calls {', '.join(unsafe)}, and may read or write files, so it is not opened. If "
            "you trust it, load it in a file net.py (network = torch.jit.load(...)), and pass 'net.py:network'."
        )
    warn_caller(f"{file} is TorchScript, a program that runs when it is opened. Open only files that you trust.")
    load: Any = torch.jit.load  # without type annotations
    return Source(load(str(file), map_location="cpu"))


def _read_programs(file: Path) -> list[str]:
    """Return the source texts in an archive; archives of ``torch.save`` have none."""
    if not zipfile.is_zipfile(file):
        return []
    with zipfile.ZipFile(file) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(".py")]
        return [archive.read(entry).decode(errors="replace") for entry in entries]
