"""Run the notebooks of this folder, each within its time, and compare the outputs with the stored ones.

    pip install ".[examples]"
    python examples/run.py                                 # all; fails if one fails or takes more than 120 s
    python examples/run.py quickstart --write              # store the outputs, after a change of the notebook
    python examples/run.py network --out notebooks         # one, to open in Jupyter with its pictures

A notebook is a file ``.ipynb`` with its outputs, which the documentation shows, or a Python script in cells (``# %%``),
which plain ``python`` runs as well.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

#: Color codes of Jupyter in tracebacks.
COLORS = re.compile(r"\x1b\[[0-9;]*m")
NUMBER = re.compile(r"-?\d+\.\d+")
#: Largest difference of a printed number from the stored one.
TOLERANCE = 0.002


def notebooks() -> dict[str, Path]:
    """Return the files of the notebooks by name."""
    scripts = [path for path in HERE.glob("*.py") if path.read_text(encoding="utf-8").startswith("# %%")]
    return {path.stem: path for path in sorted([*HERE.glob("*.ipynb"), *scripts])}


def texts(cell: Any) -> str:
    """Return the printed text of a cell, and the text of its results; of pictures only that there is one."""
    found = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        found.append("picture" if "image/png" in data else output.get("text") or data["text/plain"])
    return "\n".join(found)


def agree(stored: str, printed: str) -> bool:
    """Return whether two texts are the same, with numbers within the tolerance."""
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (stored, printed)]
    return NUMBER.split(stored) == NUMBER.split(printed) and all(
        abs(before - after) <= TOLERANCE + 1e-9 for before, after in zip(*numbers, strict=True)
    )


def store_outputs(cell: Any) -> None:
    """Keep printed text, results and pictures of a cell; leave out log lines and progress bars."""
    kept = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if "image/png" in data:
            data["image/png"] = with_palette(data["image/png"])
        if output.get("name") == "stdout" or (data and not any("widget" in kind for kind in data)):
            kept.append(output)
    if "outputs" in cell:
        cell["outputs"], cell["execution_count"], cell["metadata"] = kept, None, {}


def with_palette(png: str) -> str:
    """Return a picture with at most 256 colors, which takes a quarter of the space."""
    from PIL import Image

    packed = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").quantize(256).save(packed, "png", optimize=True)
    return base64.b64encode(packed.getvalue()).decode()


def execute(path: Path, limit: float, out: Path | None = None, *, write: bool = False) -> None:
    """Run one notebook from top to bottom in a fresh kernel.

    Args:
        path: Its file.
        limit: Seconds that the whole notebook may take, without the start of its kernel.
        out: Folder for ``name.ipynb`` with its outputs, also if it fails; None = do not write it.
        write: Store the outputs in the file, if it is ``.ipynb``, instead of comparing them.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
        TimeoutError: If it takes longer than the limit.
        ValueError: If the output of a cell differs from the stored one.
    """
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(path) if path.suffix == ".ipynb" else jupytext.read(path, fmt="py:percent")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    stored = [texts(cell) for cell in notebook.cells]
    client = NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(HERE)}})
    manager = client.create_kernel_manager()
    try:
        with tempfile.TemporaryDirectory() as sockets:
            if os.name == "posix":
                manager.transport, manager.ip = "ipc", f"{sockets}/kernel"  # not TCP, which every user could read
            with client.setup_kernel():
                stop = time.monotonic() + limit
                for index, cell in enumerate(notebook.cells):
                    # nbclient's limit is for one cell: each gets the remaining time of the notebook.
                    client.timeout = max(1, round(stop - time.monotonic()))
                    client.execute_cell(cell, index)
                    store_outputs(cell)
    finally:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            jupytext.write(notebook, out / f"{path.stem}.ipynb")
    if path.suffix != ".ipynb":
        return
    if write:
        notebook.metadata.pop("language_info", None)
        jupytext.write(notebook, path)
        return
    for number, (before, cell) in enumerate(zip(stored, notebook.cells, strict=True), start=1):
        if not agree(before, texts(cell)):
            raise ValueError(
                f"cell {number} does not print its stored output:\n{texts(cell)}\ninstead of\n{before}\n"
                f"If the new output is right: python examples/run.py {path.stem} --write"
            )


def main() -> int:
    known = notebooks()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default all: {', '.join(known)}")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a notebook may take (default 120)")
    parser.add_argument("--out", type=Path, help="write the notebooks with their outputs into this folder")
    parser.add_argument("--write", action="store_true", help="store new outputs instead of comparing them")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        parser.error(f"no notebook {', '.join(unknown)}; there are {', '.join(known)}.")
    # The networks are small: on a busy machine more threads would only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    failed = []
    for name in options.names or known:
        started = time.monotonic()
        try:
            execute(known[name], options.limit, options.out, write=options.write)
            outcome = "passed"
        except Exception as error:
            failed.append(name)
            outcome = f"FAILED: {COLORS.sub('', str(error))}"
        print(f"{name:<24} {time.monotonic() - started:5.1f} s  {outcome}", flush=True)
    print(f"{len(options.names or known) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
