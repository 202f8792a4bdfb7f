"""A plausible small run folder, as the runner leaves it, with everything synthetic."""

import functools
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock
from matplotlib.figure import Figure
from report.annotated import CONTROLS, write_annotated_run
from report.pictures import make_jobs, make_samples

from xaibench.plots.figures import encode
from xaibench.report import write_report
from xaibench.report.page import figure_files, write
from xaibench.runfolder.sample_file import SAMPLES_FILE, to_safetensors
from xaibench.scores import leaderboards
from xaibench.scores.claims import claims
from xaibench.scores.results import RunResults, read_run
from xaibench.scores.summary import infer, summarize

METHODS = {
    "pfi": "PFI",
    "integrated_gradients": "Integrated Gradients",
    "saliency": "Saliency",
    "guided_backprop": "Guided Backpropagation",
    "guided_gradcam": "Guided GradCAM",
    "deconvolution": "Deconvolution",
    "deeplift": "DeepLift",
    "shapley_sampling": "Shapley Value Sampling",
    "gradient_shap": "Gradient SHAP",
    "kernel_shap": "Kernel SHAP",
    "deep_shap": "Deep SHAP",
    "lime": "LIME",
    "lrp": "LRP",
}
MODELS = {"llr": "LLR", "mlp": "MLP", "cnn": "CNN"}
METRICS = {"emd_perf": "EMD_perf", "topk_precision": "Precision"}
PAPER = {
    ("lin", "llr"): ((0.18, 88.9), (0.0125, 99.9)),
    ("lin", "mlp"): ((0.18, 87.9), (0.0125, 99.9)),
    ("lin", "cnn"): ((0.18, 83.0), (0.0125, 86.4)),
    ("mult", "mlp"): ((0.70, 93.6), (0.10, 99.4)),
    ("mult", "cnn"): ((0.70, 83.1), (0.10, 90.6)),
    ("rigid", "mlp"): ((0.65, 91.9), (0.20, 99.9)),
    ("rigid", "cnn"): ((0.65, 93.7), (0.20, 88.8)),
    ("xor", "mlp"): ((0.35, 99.5), (0.15, 100.0)),
    ("xor", "cnn"): ((0.35, 95.2), (0.15, 99.5)),
}
BACKGROUNDS = ("white", "corr")
CELLS = [(subset, variant, model) for subset, model in PAPER for variant in BACKGROUNDS]
#: Enough for a page with gaps: a linear model, a convolution, a subset without mean maps.
FEW_CELLS = [("lin", "white", "llr"), ("lin", "white", "mlp"), ("lin", "corr", "cnn"), ("rigid", "corr", "cnn")]
ZERO = "the map is zero everywhere"


def make_scores(samples: int, cells: list, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    skill = {name: rng.uniform(0.45, 0.9) for name in [*METHODS, *CONTROLS]}
    skill |= {"uniform": 0.35, "sobel": 0.5, "laplace": 0.55, "input": 0.5}
    parts = []
    for subset, variant, model in cells:
        hard = {"llr": 0.0, "mlp": 0.05, "cnn": 0.18}[model] + 0.1 * (variant == "corr")
        correct = rng.random(samples) < 0.9
        for explainer, mean in skill.items():
            if explainer == "guided_gradcam" and model != "cnn":
                continue
            quality = np.clip(mean - hard + rng.normal(0, 0.06) + rng.normal(0, 0.08, samples), 0, 1)
            zero = rng.random(samples) < {"lime": 0.3, "saliency": 0.04}.get(explainer, 0.0)
            for metric in METRICS:
                value = 0.5 + 0.5 * quality if metric == "emd_perf" else np.round(8 * quality) / 8
                parts.append(
                    {
                        "dataset": f"xai-tris/{subset}-{variant}-8x8",
                        "subset": subset,
                        "variant": variant,
                        "model": model,
                        "seed": 1,
                        "explainer": explainer,
                        "sample": np.arange(samples),
                        "correct": correct,
                        "metric": metric,
                        "value": np.where(zero, np.nan, value),
                        "higher_is_better": True,
                        "reason": np.where(zero, ZERO, ""),
                        "data_seed": 0,
                    }
                )
    rows = {name: [np.broadcast_to(part[name], samples) for part in parts] for name in parts[0]}
    return pd.DataFrame({name: np.concatenate(values) for name, values in rows.items()})


def make_parts() -> dict:
    explainers = {
        name: {"label": label, "control": name in CONTROLS, "citation": f"{label} (2017). A method."}
        for name, label in (METHODS | CONTROLS).items()
    }
    return {
        "title": "XAI-TRIS 8×8",
        "suite": "xai-tris-8x8",
        "citation": CITATION,
        "explainers": explainers,
        "models": {name: {"label": label} for name, label in MODELS.items()},
        "metrics": {
            name: {"label": label, "higher_is_better": True, "meaning": f"What {name} means, in a sentence."}
            for name, label in METRICS.items()
        },
    }


def make_accuracy(cells: list, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    rows, trainings = [], []
    for subset, variant, model in cells:
        alpha, paper = PAPER[subset, model][BACKGROUNDS.index(variant)]
        spread = 12 if (subset, variant, model) == ("rigid", "corr", "cnn") else 1.5
        tests = np.clip(paper + rng.normal(0.3, spread, 3), 50, 100).round(1)
        best = int(tests.argmax())
        trainings += [
            {
                **{"subset": subset, "variant": variant, "model": model, "data_seed": 0, "seed": i},
                **{"best_epoch": int(rng.integers(50, 500)), "val_loss": float(rng.uniform(0.01, 0.4))},
                **{"val_accuracy": test, "test_accuracy": test, "explained": i == best},
            }
            for i, test in enumerate(tests)
        ]
        rows.append(
            {
                **{"subset": subset, "variant": variant, "model": model, "alpha": alpha, "trainings": 3},
                **{"mean": tests.mean().round(2), "std": tests.std(ddof=1).round(2), "best": tests.max()},
                **{"learned": int((tests >= 80).sum()), "paper": paper, "difference": round(tests.mean() - paper, 2)},
            }
        )
    return pd.DataFrame(rows), pd.DataFrame(trainings)


ENVIRONMENT = {
    "xaibench": "0.1.0",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "python": "3.12.1",
    "versions": {"torch": "2.9.0", "captum": "0.8.0"},
    "machine": {"system": "Linux-6.1-x86_64", "processor": "Example CPU", "cpus": 2, "gpus": []},
    "engine": "processes",
    "workers": 2,
    "device": "cpu",
    "finished": "2025-01-02T03:15:35+00:00",
    "seconds": 690.0,
    "seeds": {"data": [0], "training": [0, 1, 2], "explaining": 0},
}
CITATION = "B. Clark, R. Wilming, S. Haufe (2023). XAI-TRIS. arXiv:2306.12816"


def write_run(folder: Path, samples: int = 40, cells: list = CELLS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    scores = make_scores(samples, cells)
    scores.to_parquet(folder / "scores.parquet")
    (folder / SAMPLES_FILE).write_bytes(to_safetensors(make_samples(scores)))
    make_jobs(scores).to_csv(folder / "jobs.csv", index=False)
    accuracy, trainings = make_accuracy(cells)
    accuracy.to_csv(folder / "accuracy.csv", index=False)
    trainings.to_csv(folder / "trainings.csv", index=False)
    (folder / "failures.csv").write_text("job,stage,error\n")
    (folder / "descriptions.json").write_text(json.dumps(make_parts()))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "suite.toml").write_text('name = "xai-tris-8x8"\nseed = 0\n')
    return folder


@pytest.fixture(scope="session")
def annotated_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on annotated sets for tests that only read it (or write the report into it)."""
    return write_annotated_run(tmp_path_factory.mktemp("annotated") / "run")


@pytest.fixture(scope="session")
def small_annotated_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Template of ``fresh_annotated_run``, since copying is faster than writing."""
    return write_annotated_run(tmp_path_factory.mktemp("small_annotated") / "run", samples=24)


@pytest.fixture
def fresh_annotated_run(small_annotated_run: Path, tmp_path: Path, no_figures: None) -> Path:
    """A modifiable run on annotated sets, whose page has empty figures."""
    return Path(shutil.copytree(small_annotated_run, tmp_path / "annotated"))


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder for tests that only read it (or write the report into it)."""
    return write_run(tmp_path_factory.mktemp("run") / "run")


def save_small(figure, kind):
    """Save a figure as the page does, but PNG files, which take most of the time, at low resolution."""
    if kind == "svg":
        return encode(figure, kind)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=20)
    return buffer.getvalue()


@pytest.fixture
def four_columns(few_cells_run: Path, tmp_path: Path) -> Path:
    """A run with a network that the paper does not have: a copy of each CNN with inverted scores."""
    folder = Path(shutil.copytree(few_cells_run, tmp_path / "four"))
    scores = pd.read_parquet(folder / "scores.parquet")
    column = scores[scores["model"] == "cnn"].assign(model="vit", value=lambda rows: 1 - rows["value"])
    pd.concat([scores, column]).to_parquet(folder / "scores.parquet")
    for name in ("accuracy.csv", "trainings.csv"):
        rows = pd.read_csv(folder / name)
        pd.concat([rows, rows[rows["model"] == "cnn"].assign(model="vit")]).to_csv(folder / name, index=False)
    parts = json.loads((folder / "descriptions.json").read_text())
    parts["models"]["vit"] = parts["models"]["cnn"] | {"label": "ViT"}
    (folder / "descriptions.json").write_text(json.dumps(parts))
    return folder


def add_page(
    run: Path, factory: pytest.TempPathFactory, name: str, change: Callable[[pytest.MonkeyPatch], None]
) -> str:
    """The page of a run, which is written into its folder; the first process of several builds it for all."""
    base = factory.getbasetemp()
    built = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{built}.lock"), pytest.MonkeyPatch.context() as patch:
        if not built.exists():
            change(patch)
            resample_little(patch)
            partial = built.with_suffix(".partial")
            partial.mkdir()
            write_report(run, partial)
            partial.rename(built)
    shutil.copytree(built, run, dirs_exist_ok=True)
    return (run / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def shared_page(shared_run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of ``shared_run``."""
    return add_page(
        shared_run, tmp_path_factory, "shared_page", lambda patch: patch.setattr(figure_files, "encode", save_small)
    )


def findings(folder: Path) -> tuple[RunResults, pd.DataFrame, pd.DataFrame]:
    run = read_run(folder)
    return run, *infer(run, summarize(run))


@pytest.fixture(scope="session")
def shared_findings(shared_run: Path) -> tuple[RunResults, pd.DataFrame, pd.DataFrame]:
    """The run, its summary and its pairs, for tests that only look at them."""
    return findings(shared_run)


@pytest.fixture(scope="session")
def annotated_findings(annotated_run: Path) -> tuple[RunResults, pd.DataFrame, pd.DataFrame]:
    """The same, of the run on annotated sets."""
    return findings(annotated_run)


@pytest.fixture(scope="session")
def all_cells_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Template of ``fresh_run``."""
    return write_run(tmp_path_factory.mktemp("all_cells") / "run", samples=12)


@pytest.fixture(scope="session")
def few_cells_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Template of ``small_run`` and ``drawn_run``."""
    return write_run(tmp_path_factory.mktemp("few_cells") / "run", samples=12, cells=FEW_CELLS)


@pytest.fixture
def fresh_run(all_cells_run: Path, tmp_path: Path) -> Path:
    """A modifiable run folder."""
    return Path(shutil.copytree(all_cells_run, tmp_path / "run"))


@pytest.fixture
def empty_png(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write empty PNG files, since drawing them takes most of the time of a report."""
    draw_svg_only(monkeypatch)


def draw_svg_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_files, "encode", lambda figure, kind: b"" if kind == "png" else encode(figure, kind))


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace figures by empty ones, for tests of words, tables and maps only."""
    draw_nothing(monkeypatch)


def draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("band_figure", "forest_figure", "ranking_figure", "score_figure", "sheet_figure"):
        monkeypatch.setattr(figure_files, name, lambda *_: Figure())
    monkeypatch.setattr(figure_files, "encode", lambda figure, kind: b'<svg viewBox="0 0 1 1"></svg>')
    resample_little(monkeypatch)


def resample_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """For pages whose intervals nobody looks at."""
    monkeypatch.setattr(leaderboards, "RESAMPLES", 20)
    monkeypatch.setattr(write, "claims", functools.partial(claims, resamples=20))


@pytest.fixture
def small_run(few_cells_run: Path, tmp_path: Path, no_figures: None) -> Path:
    """A modifiable run folder with few cells, whose page has empty figures."""
    return Path(shutil.copytree(few_cells_run, tmp_path / "run"))


@pytest.fixture
def drawn_run(few_cells_run: Path, tmp_path: Path, empty_png: None) -> Path:
    """A modifiable run folder with few cells, whose figures are SVG only."""
    return Path(shutil.copytree(few_cells_run, tmp_path / "run"))
