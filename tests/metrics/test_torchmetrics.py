import copy
import math
import pickle
import subprocess
import sys

import pytest
import torch

from xaibench import metrics

pytest.importorskip("torchmetrics")
from torchmetrics import MetricCollection

from xaibench.metrics import torchmetrics as ours

NAMES = {
    ours.IoU: "iou",
    ours.Precision: "precision",
    ours.Recall: "recall",
    ours.F1: "f1",
    ours.Hit: "hit",
    ours.TopKPrecision: "topk_precision",
    ours.MassAccuracy: "mass_accuracy",
    ours.EMD: "emd",
    ours.EMDPerformance: "emd_perf",
    ours.AUC: "auc",
    ours.AveragePrecision: "average_precision",
    ours.Sparseness: "sparseness",
    ours.Complexity: "complexity",
}
every_class = pytest.mark.parametrize(("build", "name"), NAMES.items(), ids=NAMES.values())


@pytest.fixture
def pairs():
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(11, 6, 6, generator=generator)
    masks = torch.rand(11, 6, 6, generator=generator) < 0.3
    masks[4], maps[7] = False, 0
    return maps, masks


def inputs(name, *pair):
    return pair[:1] if metrics.METRICS.resolve(name).info.kind == "map" else pair


@every_class
def test_batches_give_the_function_on_all_samples(build, name, pairs):
    mean, function = build(), metrics.METRICS.resolve(name)
    for start, stop in [(0, 1), (1, 5), (5, 5), (5, 11)]:
        mean.update(*inputs(name, pairs[0][start:stop], pairs[1][start:stop]))
    assert mean.compute().item() == function(*inputs(name, *pairs))
    assert mean.compute().dtype == torch.float64
    assert mean.n_valid == (~function(*inputs(name, *pairs), reduction="none").isnan()).sum()
    assert mean.higher_is_better == function.info.higher_is_better
    mean.reset()
    mean.update(*inputs(name, pairs[0][:3], pairs[1][:3]))
    assert mean.compute().item() == function(*inputs(name, pairs[0][:3], pairs[1][:3]))


def test_every_metric_of_maps_has_a_class():
    registered = {n for n in metrics.METRICS if metrics.METRICS.resolve(n).info.kind in ("ground-truth", "map")}
    assert registered == set(NAMES.values())


@pytest.mark.parametrize(
    ("mean", "function", "parameters"),
    [
        (ours.IoU(threshold=0.7), metrics.iou, {"threshold": 0.7}),
        (ours.Precision(threshold=0.7), metrics.precision, {"threshold": 0.7}),
        (ours.Recall(threshold=0.1), metrics.recall, {"threshold": 0.1}),
        (ours.F1(threshold=0.7), metrics.f1, {"threshold": 0.7}),
        (ours.Hit(tolerance=1), metrics.hit, {"tolerance": 1}),
        (ours.EMDPerformance(diameter="released"), metrics.emd_perf, {"diameter": "released"}),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, ours.MeanScore) else "",
)
def test_parameters_reach_the_function(mean, function, parameters, pairs):
    mean.update(*pairs)
    assert mean.compute().item() == function(*pairs, **parameters) != function(*pairs)


def test_forward_gives_the_batch_and_keeps_the_whole(pairs):
    mean = ours.IoU()
    first = mean(pairs[0][:4], pairs[1][:4])
    mean(pairs[0][4:], pairs[1][4:])
    assert first.item() == metrics.iou(pairs[0][:4], pairs[1][:4])
    assert mean.compute().item() == metrics.iou(*pairs)


def test_a_collection_and_copies_work(pairs):
    both = MetricCollection({"iou": ours.IoU(), "hit": ours.Hit(), "auc": ours.AUC()})
    both.update(*pairs)
    expected = {"iou": metrics.iou(*pairs), "hit": metrics.hit(*pairs), "auc": metrics.auc(*pairs)}
    assert {name: value.item() for name, value in both.compute().items()} == expected
    for copied in (copy.deepcopy(both["iou"]), pickle.loads(pickle.dumps(both["iou"]))):
        assert copied.compute().item() == expected["iou"]


def test_scores_of_several_processes_are_joined(pairs):
    # What torchmetrics does when it synchronises: the lists of all processes become one tensor.
    parts = [ours.IoU(), ours.IoU()]
    for part, some in zip(parts, (slice(0, 4), slice(4, 11)), strict=True):
        part.update(pairs[0][some], pairs[1][some])
    parts[0].scores = torch.cat([torch.cat(part.scores) for part in parts])
    assert parts[0].compute().item() == metrics.iou(*pairs)
    assert parts[0].n_valid == 10


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")
def test_nothing_has_no_mean():
    assert math.isnan(ours.IoU().compute().item())
    assert ours.IoU().n_valid == 0


def test_any_metric_by_name(pairs):
    mean = ours.MeanScore("xaibench.metrics.overlap:recall", {"threshold": 0.2})
    mean.update(*pairs)
    assert mean.compute().item() == metrics.recall(*pairs, threshold=0.2)
    with pytest.raises(ValueError, match="unknown metric 'iuo'; did you mean 'iou'"):
        ours.MeanScore("iuo")


def test_errors_are_those_of_the_function():
    with pytest.raises(ValueError, match=r"maps \[2, 3, 3\] and masks \[1, 3, 3\]"):
        ours.IoU().update(torch.ones(2, 3, 3), torch.ones(1, 3, 3))


def test_without_the_extra_the_error_tells_the_command():
    program = "import sys; sys.modules['torchmetrics'] = None; import xaibench.metrics.torchmetrics"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert 'pip install "xaibench[torchmetrics]"' in finished.stderr.splitlines()[-1]


def test_the_package_does_not_load_torchmetrics():
    program = "import sys, xaibench.metrics; print('torchmetrics' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "False"
