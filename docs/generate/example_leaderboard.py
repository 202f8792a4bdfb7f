"""Write an example of a leaderboard site from a run of a tiny suite, which takes some seconds."""

from __future__ import annotations

import tempfile
from pathlib import Path

#: Small enough to be run whenever the documentation is built.
SUITE = """
name = "example"
title = "Example suite"

[data]
seeds = [0, 1]
parameters = { n_samples = 400 }

[training]
seeds = [0]
epochs = 10
batch_size = 64

[explaining]
samples = 20

[[cells]]
datasets = ["xai-tris/lin-white-8x8", "xai-tris/rigid-white-8x8"]
models = ["llr", "mlp"]

[explainers]
saliency = {}
input_x_gradient = {}
integrated_gradients = { n_steps = 16 }
smoothgrad = { n_samples = 8 }
uniform = {}
sobel = {}

[metrics]
topk_precision = {}
emd_perf = {}
"""


def write_example(out: Path) -> None:
    """Run the suite, make a result of each of its methods, and write their site to the new folder ``out``."""
    from xaibench.leaderboard import split_run, write_site
    from xaibench.runner import run

    with tempfile.TemporaryDirectory(prefix="xaibench-example-") as temporary:
        folder = Path(temporary)
        (folder / "example.toml").write_text(SUITE, encoding="utf-8")
        run(folder / "example.toml", folder / "run", engine="serial")
        split_run(folder / "run", folder / "results")
        write_site(folder / "results", out, title="Example of a leaderboard")


if __name__ == "__main__":
    import sys

    write_example(Path(sys.argv[1]))
