"""Open a TorchScript file, which is a program, after a look at the operators that it calls."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from xaibench.core.messages import warn_caller
from xaibench.models.opening.sources import Source

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
