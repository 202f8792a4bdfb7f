"""A made-up run folder of annotated sets: eight explainers, five controls, and the files that only such runs have."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from xaibench.runfolder.sample_file import SAMPLES_FILE, SampleCell, to_safetensors

CONTROLS = {"sobel": "Sobel", "laplace": "Laplace", "uniform": "Uniform", "input": "Input"}
SETS = ("pet", "scene")
VISUAL = {
    "cam": "CAM",
    "gradcam": "GradCAM",
    "gradcam++": "GradCAM++",
    "integrated_gradients": "Integrated Gradients",
    "guided_backprop": "Guided Backpropagation",
    "saliency": "Saliency",
    "input_x_gradient": "Input × Gradient",
    "rise": "RISE",
}
VISUAL_CONTROLS = CONTROLS | {"center_prior": "Center prior"}
#: Label, direction, mean and spread of the scores.
VISUAL_METRICS = {
    "iou": ("IoU", True, 0.3, 0.12),
    "precision": ("Precision", True, 0.5, 0.2),
    "recall": ("Recall", True, 0.4, 0.2),
    "f1": ("F1", True, 0.4, 0.15),
    "average_precision": ("Average precision", True, 0.5, 0.15),
    "hit": ("Pointing game", True, 0.6, 0.0),
    "insertion": ("Insertion", True, 0.6, 0.2),
    "deletion": ("Deletion", False, 0.3, 0.15),
    "average_drop": ("Average drop", False, 40.0, 20.0),
    "comprehensiveness": ("Comprehensiveness", True, 0.3, 0.2),
    "sufficiency": ("Sufficiency", False, 0.3, 0.2),
}


def make_annotated_scores(samples: int, model: str, seed: int = 0) -> pd.DataFrame:
    """Scores that share what is easy about a sample, so that metrics agree and paired tests have something to find."""
    rng = np.random.default_rng(seed)
    parts = []
    for dataset in SETS:
        easy, correct = rng.normal(size=samples), rng.random(samples) < 0.9
        for place, explainer in enumerate([*VISUAL, *VISUAL_CONTROLS]):
            skill = 0.12 * place if explainer in VISUAL else -0.2
            own = easy + rng.normal(size=samples)
            for metric, (_, higher, mean, spread) in VISUAL_METRICS.items():
                z = (skill + 0.7 * own + 0.7 * rng.normal(size=samples)) * (1 if higher else -1)
                value = (z > -0.3).astype(float) if metric == "hit" else mean + spread * z / 2
                head = {"dataset": dataset, "subset": dataset, "variant": "-", "model": model, "seed": 0}
                head |= {"explainer": explainer, "sample": np.arange(samples), "correct": correct, "metric": metric}
                tail = {"value": value, "higher_is_better": higher, "reason": "", "data_seed": 0}
                parts.append(pd.DataFrame(head | tail))
    return pd.concat(parts, ignore_index=True)


def make_sheet(model: str, images: int = 3, side: int = 48) -> list[SampleCell]:
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:side, :side] / side
    cells = []
    for dataset in SETS:
        blobs = [np.exp(-((x - 0.3 - 0.15 * i) ** 2 + (y - 0.55) ** 2) / 0.03) for i in range(images)]
        colors = [np.stack([0.3 + 0.5 * blob, 0.5 * y + 0.2, 0.6 - 0.3 * x], axis=-1) for blob in blobs]
        noise = [0.1 + 0.06 * place for place in range(len(VISUAL | VISUAL_CONTROLS))]
        maps = np.abs([[blob + rng.normal(size=(side, side)) * each for each in noise] for blob in blobs])
        cells.append(
            SampleCell(
                **{"subset": dataset, "variant": "-", "model": model, "dataset": dataset},
                **{"data_seed": 0, "seed": 0, "browsed": 0, "example": None, "photographs": True},
                samples=tuple(range(images)),
                labels=tuple(f"{dataset}_{i}.jpg: {'cat' if i % 2 else 'dog'}" for i in range(images)),
                sheet=tuple(range(images)),
                explainers=tuple(VISUAL | VISUAL_CONTROLS),
                images=(255 * np.clip(colors, 0, 1)).astype(np.uint8),
                masks=(np.array(blobs) > 0.4).astype(np.uint8),
                maps=(maps / maps.max((2, 3), keepdims=True)).astype(np.float16),
                means=np.zeros((0, side, side), np.float32),
            )
        )
    return cells


def make_curves(model: str, samples: int = 60) -> pd.DataFrame:
    parts = []
    for dataset in SETS:
        for metric in ("insertion", "deletion"):
            for place, explainer in enumerate([*VISUAL, *VISUAL_CONTROLS]):
                fraction = np.linspace(0, 1, 65)
                rise = fraction ** (0.3 + 0.05 * place)
                mean = 0.9 * (rise if metric == "insertion" else 1 - rise) + 0.05
                head = {"dataset": dataset, "model": model, "explainer": explainer, "metric": metric}
                rest = {"fraction": fraction, "mean": mean, "low": mean - 0.05, "high": mean + 0.05, "n": samples}
                parts.append(pd.DataFrame(head | rest))
    return pd.concat(parts, ignore_index=True)


def write_annotated_run(folder: Path, samples: int = 60, model: str = "resnet18") -> Path:
    """A run on annotated sets: scores, and the files that only such runs have."""
    folder.mkdir(parents=True, exist_ok=True)
    make_annotated_scores(samples, model).to_parquet(folder / "scores.parquet")
    cell = {"variant": "-", "model": model, "alpha": "", "trainings": 1}
    reached = {"std": 0.0, "learned": 1, "paper": "", "difference": ""}
    rows = [
        {"subset": name, **cell, "mean": mean, "best": mean, **reached, "precision": mean + 1, "recall": 90.0, "f1": ""}
        for name, mean in zip(SETS, (97.5, 95.0), strict=True)
    ]
    pd.DataFrame(rows).to_csv(folder / "accuracy.csv", index=False)
    explainers = {
        name: {"label": label, "control": name in VISUAL_CONTROLS, "citation": ""}
        for name, label in (VISUAL | VISUAL_CONTROLS).items()
    }
    metrics = {
        name: {"label": row[0], "higher_is_better": row[1], "range": [0, 1], "attains_ends": True}
        for name, row in VISUAL_METRICS.items()
    }
    parts = {"title": "Visual benchmark", "suite": "saliency-bench", "explainers": explainers, "metrics": metrics}
    (folder / "descriptions.json").write_text(json.dumps(parts | {"models": {model: {"label": "ResNet-18"}}}))
    (folder / "environment.json").write_text(json.dumps({"xaibench": "0.1.0"}))
    (folder / "suite.toml").write_text('name = "saliency-bench"\n[explaining]\nprotocol = "scaled"\n')
    names = [
        {"dataset": name, "data_seed": 0, "sample": i, "id": f"{name}_{i}"} for name in SETS for i in range(samples)
    ]
    table = pd.DataFrame(names)
    table["group"] = table["sample"] // 2
    table.assign(file=table["id"] + ".jpg").to_csv(folder / "samples.csv", index=False)
    make_curves(model, samples).to_parquet(folder / "curves.parquet")
    (folder / SAMPLES_FILE).write_bytes(to_safetensors(make_sheet(model)))
    return folder
