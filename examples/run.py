"""Turn the notebooks of this folder into Jupyter's format and run them, each within its time.

    pip install ".[examples]"
    python examples/run.py                                 # all; fails if one fails or takes more than 120 s
    python examples/run.py explainer --out notebooks       # one, to open in Jupyter with its pictures

A notebook is a Python script in cells (``# %%``), which plain ``python`` runs as well.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent

#: Color codes of Jupyter in tracebacks.
COLORS = re.compile(r"\x1b\[[0-9;]*m")


def notebooks() -> list[str]:
    """Return the names of the scripts in cells."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.read_text(encoding="utf-8").startswith("# %%"))


def execute(name: str, limit: float, out: Path | None) -> None:
    """Run one notebook from top to bottom in a fresh kernel.

    Args:
        name: Name of the script, without its suffix.
        limit: Seconds that the whole notebook may take, without the start of its kernel.
        out: Folder for ``name.ipynb`` with its outputs, also if it fails; None = do not write it.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
        TimeoutError: If it takes longer than the limit.
    """
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(HERE / f"{name}.py", fmt="py:percent")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
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
    finally:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            jupytext.write(notebook, out / f"{name}.ipynb")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default all: {', '.join(notebooks())}")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a notebook may take (default 120)")
    parser.add_argument("--out", type=Path, help="write the notebooks with their outputs into this folder")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(notebooks()))
    if unknown:
        parser.error(f"no notebook {', '.join(unknown)}; there are {', '.join(notebooks())}.")
    # The networks are small: on a busy machine more threads would only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    failed = []
    for name in options.names or notebooks():
        started = time.monotonic()
        try:
            execute(name, options.limit, options.out)
            outcome = "passed"
        except Exception as error:
            failed.append(name)
            outcome = f"FAILED: {COLORS.sub('', str(error))}"
        print(f"{name:<24} {time.monotonic() - started:5.1f} s  {outcome}", flush=True)
    print(f"{len(options.names or notebooks()) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
