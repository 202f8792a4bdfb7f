"""What an installed xaibench must be able to do, with nothing but its own dependencies: ``python tests/smoke.py``.

It tests the package that is installed beside this interpreter, not the checkout: each step runs in a folder of its own,
in a fresh process, as a user's would.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

#: The source distribution lacks these; a wheel that is built from it does, too.
NETWORKS = [f"benchmarks/xai_tris/networks/xai-tris-64x64{suffix}" for suffix in (".json", ".safetensors.xz")]

IMPORT_IS_LIGHT = """
import sys, time
started = time.perf_counter()
import xaibench
seconds = time.perf_counter() - started
heavy = sorted({"torch", "captum", "numpy", "pandas", "matplotlib"} & set(sys.modules))
assert not heavy, f"import xaibench loads {heavy}"
assert seconds < 1, f"import xaibench takes {seconds:.2f} s"
"""

PYTHON_SCORES = """
import xaibench as xb
data = xb.load("xai-tris/lin-white-8x8", seed=0, n_samples=1000)
model = xb.models.build("llr", in_shape=(1, 8, 8), num_classes=2, seed=0)
xb.models.fit(model, data.train, data.val, epochs=60, lr=0.02, seed=0, progress=False)
images, masks, targets = data.test[:50]
right = xb.topk_precision(xb.explain("saliency", model, images, targets), masks)
chance = xb.topk_precision(xb.explain("uniform", model, images, targets), masks)
assert right > 0.5 > chance, (right, chance)
assert abs(xb.emd_perf(masks.float(), masks) - 1) < 1e-6
"""

SUITE = """
name = "smoke"
title = "Smoke test"

[data]
seeds = [0]
parameters = { n_samples = 400 }

[training]
seeds = [0]
epochs = 5

[explaining]
samples = 20
scored = "all"

[[cells]]
datasets = ["xai-tris/lin-white-8x8"]
models = ["llr", "cnn"]

[explainers]
saliency = {}
gradcam = {}
lime = { n_samples = 20 }
laplace = {}

[metrics]
emd_perf = {}
iou = { threshold = 0.5 }
deletion = { steps = 8 }
"""


def python(code: str, folder: Path) -> str:
    """What a fresh interpreter prints; -P keeps the folder it runs in off its path."""
    return said([sys.executable, "-P", "-c", code], folder)


def xaibench(*arguments: str, folder: Path) -> str:
    """What the installed command prints."""
    return said([str(Path(sys.executable).parent / "xaibench"), *arguments], folder)


def said(command: list[str], folder: Path) -> str:
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if finished.returncode:
        raise SystemExit(f"{command[:3]} ended with {finished.returncode}:\n{finished.stdout}\n{finished.stderr}")
    return finished.stdout


def package_is_whole(folder: Path) -> None:
    code = "import importlib.resources as r; print(r.files('xaibench'))"
    installed = Path(python(code, folder).strip())
    for file in ("py.typed", "benchmarks/xai_tris/suites/xai-tris-8x8.toml", *NETWORKS):
        assert (installed / file).is_file(), f"{file} is not in {installed}"


def command_lists(folder: Path) -> None:
    listed = xaibench("list", folder=folder)
    for name in ("xai-tris/lin-white-8x8", "efficientnet_lite0", "integrated_gradients", "emd_perf", "saliency-bench"):
        assert name in listed, f"xaibench list does not name {name}"


def command_plans(folder: Path) -> None:
    xaibench("run", "xai-tris-8x8", "--quick", "--plan", folder=folder)


def command_runs(folder: Path) -> None:
    (folder / "smoke.toml").write_text(SUITE)
    xaibench("run", "smoke.toml", "--out", "run", "--engine", "serial", folder=folder)
    failures = (folder / "run" / "failures.csv").read_text().splitlines()
    assert len(failures) == 1, "\n".join(failures)
    report = (folder / "run" / "report.html").read_text()
    for label in ("Saliency", "LIME", "Laplace"):
        assert label in report, f"report.html does not show {label}"


def main() -> None:
    steps: dict[str, Callable[[Path], object]] = {
        "the package is whole": package_is_whole,
        "import is light": lambda folder: python(IMPORT_IS_LIGHT, folder),
        "xaibench list": command_lists,
        "a score in Python": lambda folder: python(PYTHON_SCORES, folder),
        "xaibench run xai-tris-8x8 --plan": command_plans,
        "xaibench run": command_runs,
    }
    for name, step in steps.items():
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            step(Path(folder))
            print(f"{name:<34} {time.perf_counter() - started:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
