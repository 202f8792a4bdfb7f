"""Write an example of a leaderboard site from the small form of a suite, which takes some twenty seconds."""

from __future__ import annotations

import tempfile
from pathlib import Path

METHODS = ["saliency", "input_x_gradient", "integrated_gradients", "smoothgrad", "lrp"]


def write_example(out: Path) -> None:
    """Run the suite, make a result of each of its methods, and write their site to the new folder ``out``."""
    from xaibench.leaderboard import split_run, write_site
    from xaibench.runner import run

    with tempfile.TemporaryDirectory(prefix="xaibench-example-") as temporary:
        folder = Path(temporary)
        run("xai-tris-8x8", folder / "run", quick=True, explainers=METHODS, engine="serial")
        split_run(folder / "run", folder / "results")
        write_site(folder / "results", out, title="Example of a leaderboard")


if __name__ == "__main__":
    import sys

    write_example(Path(sys.argv[1]))
