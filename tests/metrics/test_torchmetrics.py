"""The classes for training loops: the function on all samples, whatever the batches, alone and in a collection."""

import copy
import inspect
import math
import pickle

import pytest
import torch
from fresh_process import run_fresh
from oracles.networks import batch, small_cnn
from oracles.simple_explainers import saliency
from part_cases import MetricCase, case
from refusals import refused

from xaibench import metrics

pytest.importorskip("torchmetrics")
from torchmetrics import MetricCollection

from xaibench.metrics import torchmetrics as ours
from xaibench.metrics.torchmetrics import class_name

#: Each class, by the metric behind it.
CLASSES = {name: getattr(ours, class_name(name)) for name in metrics.METRICS}
SMALL = {name: case(metrics.METRICS, name, MetricCase()).quick for name in metrics.METRICS}
TAKES = {
    "ground-truth": ("maps", "masks"),
    "map": ("maps",),
    "model": ("model", "images", "maps", "targets"),
    "explainer": ("explainer", "model", "images", "targets"),
}
KIND = {name: metrics.METRICS.resolve(name).info.kind for name in metrics.METRICS}
every_class = pytest.mark.parametrize("name", CLASSES)


@pytest.fixture
def pairs():
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(11, 6, 6, generator=generator)
    masks = torch.rand(11, 6, 6, generator=generator) < 0.3
    masks[4], maps[7] = False, 0
    return maps, masks


@pytest.fixture
def everything(pairs):
    """What metrics of any kind are called with, by name."""
    images, _, targets = batch(n=11, size=(6, 6))
    maps, masks = pairs
    return {
        "model": small_cnn(),
        "explainer": saliency,
        "images": images,
        "targets": targets,
        "maps": maps,
        "masks": masks,
    }


def some(everything, rows):
    return {name: value[rows] if isinstance(value, torch.Tensor) else value for name, value in everything.items()}


def expected(name, everything):
    function = metrics.METRICS.resolve(name)
    inputs = (everything[argument] for argument in TAKES[function.info.kind])
    return function(*inputs, **SMALL[name], reduction="none")


def build(name):
    return CLASSES[name](**SMALL[name])


@every_class
def test_batches_give_the_function_on_all_samples(name, everything):
    mean, function = build(name), metrics.METRICS.resolve(name)
    exact = function.info.kind in ("ground-truth", "map")
    whole, cuts = expected(name, everything), [slice(0, 1), slice(1, 5), slice(5, 11)]
    if exact:
        cuts.insert(2, slice(5, 5))
    for rows in cuts:
        mean.update(*(some(everything, rows)[argument] for argument in TAKES[function.info.kind]))
    assert mean.compute().dtype == mean.scores.dtype == torch.float64
    torch.testing.assert_close(mean.scores, whole, rtol=0 if exact else 1e-4, atol=0 if exact else 1e-6, equal_nan=True)
    assert mean.compute().item() == pytest.approx(whole.nanmean().item(), rel=1e-15 if exact else 1e-4)
    assert mean.n_valid == (~whole.isnan()).sum()
    assert mean.higher_is_better == function.info.higher_is_better
    mean.reset()
    assert mean.n_valid == 0
    mean.update(*(some(everything, slice(0, 3))[argument] for argument in TAKES[function.info.kind]))
    assert mean.compute().item() == pytest.approx(expected(name, some(everything, slice(0, 3))).nanmean().item())


def test_every_metric_has_a_class():
    assert {made.__name__ for made in CLASSES.values()} < set(ours.__all__)
    assert len(set(CLASSES.values())) == len(metrics.METRICS)


@every_class
def test_the_class_takes_the_parameters_of_the_function_and_passes_them_on(name, monkeypatch):
    function = inspect.signature(metrics.METRICS.resolve(name)).parameters
    own = inspect.signature(CLASSES[name]).parameters
    assert {p.kind for p in own.values()} <= {inspect.Parameter.KEYWORD_ONLY}
    assert {n: p.default for n, p in own.items()} == {n: function[n].default for n in own}
    form = {"reduction", "return_curves", "exact"}  # which decide what the result looks like
    assert set(function) - set(own) <= {*TAKES[KIND[name]], *form}
    made = CLASSES[name]
    assert f":func:`xaibench.metrics.{name}`" in made.__doc__
    assert all(f"\n    {parameter}: " in made.__doc__ for parameter in inspect.signature(made).parameters)
    assert pickle.loads(pickle.dumps(made)) is made
    assert pickle.loads(pickle.dumps(build(name))).n_valid == 0
    seen = []
    spy = lambda *inputs, **given: seen.append(given) or torch.zeros(1)  # noqa: E731
    monkeypatch.setitem(metrics.METRICS._imported, name, spy)
    given = {parameter: object() for parameter in inspect.signature(CLASSES[name]).parameters}
    mean = CLASSES[name](**given)
    mean.update(*([None] * len(TAKES[KIND[name]])))
    assert seen == [given | {"reduction": "none"}]


def test_a_parameter_that_is_none_is_refused_with_the_nearest():
    refused(TypeError, "Deletion has no parameter 'stps'; did you mean 'steps'", lambda: ours.Deletion(stps=3))
    refused(TypeError, "IoU.__init__() takes 1 positional argument", ours.IoU, 0.5)


def test_one_collection_of_all_classes(everything):
    # By name, each takes what it asks for. On positive maps many scores of the first batch are equal.
    scores = MetricCollection({name: build(name) for name in CLASSES})
    everything["maps"][:3].abs_()
    for rows in (slice(0, 3), slice(3, 7), slice(7, 11)):
        scores.update(**some(everything, rows))
    found = scores.compute()
    for name in CLASSES:
        assert found[name].item() == pytest.approx(expected(name, everything).nanmean().item(), rel=1e-4, abs=1e-6)
        assert len(scores[name].scores) == 11


def test_torchmetrics_does_not_take_equal_first_batches_for_equal_metrics():
    # A MetricCollection updates only one of the metrics whose states are equal after the first batch. Of positive maps
    # IoU and precision are equal, and from then on precision would be the IoU.
    masks = torch.tensor([[[1, 0], [0, 0]]])
    both = MetricCollection({"iou": ours.IoU(), "precision": ours.Precision(), "cut": ours.Precision(threshold=0.5)})
    for maps in ([[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.2], [-1.0, -1.0]], [[-1.0, 1.0], [-1.0, -1.0]]):
        both.update(torch.tensor([maps]), masks)
    assert both["iou"].scores.tolist() == [0.25, 0.5, 0.0]
    assert both["precision"].scores.tolist() == [0.25, 0.5, 0.0]
    assert both["cut"].scores.tolist() == [0.25, 1.0, 0.0]
    both = MetricCollection({"iou": ours.IoU(), "recall": ours.Recall(), "other": ours.Recall(threshold=2.0)})
    for maps in ([[3.0, 3.0], [3.0, 3.0]], [[3.0, 1.0], [0.2, -1.0]]):
        both.update(torch.tensor([maps]), torch.ones_like(masks))
    found = {name: score.item() for name, score in both.compute().items()}
    assert found == {"iou": 0.875, "recall": 0.75, "other": 0.625}


def test_equal_classes_with_other_tensors_are_two_metrics(everything):
    one, two = (ours.Deletion(steps=2, baseline=torch.full((2, 60, 60), value)) for value in (0.0, 1.0))
    other = ours.Deletion(steps=2, baseline=torch.full((2, 60, 60), 0.0))
    assert set(one._defaults) == set(other._defaults) != set(two._defaults)


@every_class
def test_a_class_is_a_module_like_any_other(name, everything):
    """What Lightning, optimizers and checkpoints do with a module that holds a metric."""
    inputs = [everything[argument] for argument in TAKES[KIND[name]]]
    holder = torch.nn.Module()
    holder.mean = build(name)
    assert list(holder.parameters()) == []
    assert dict(holder.state_dict()) == {}
    for moved in (
        holder.to("cpu"),
        holder.to(torch.float64),
        holder.to("cpu", torch.float32),
        holder.cpu(),
        holder.half(),
        holder.double(),
        holder.float(),
        holder.train(),
        holder.eval(),
    ):
        assert moved is holder
    holder.load_state_dict(holder.state_dict())
    mean = holder.mean.to("cpu")
    mean.update(*inputs)
    whole = mean.compute()
    for copied in (mean.clone(), copy.deepcopy(mean), pickle.loads(pickle.dumps(mean))):
        assert type(copied) is CLASSES[name]
        torch.testing.assert_close(copied.compute(), whole, rtol=0, atol=0, equal_nan=True)
    assert repr(mean) == f"{class_name(name)}()"
    mean.reset()
    assert mean.n_valid == 0


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")
def test_the_state_is_saved_and_loaded(pairs):
    mean, other = ours.IoU(threshold=0.5), ours.IoU(threshold=0.5)
    mean.persistent(True)
    mean.update(*pairs)
    (saved,) = mean.state_dict().values()
    torch.testing.assert_close(torch.cat(saved), mean.scores, rtol=0, atol=0, equal_nan=True)
    other.persistent(True)
    other.load_state_dict(mean.state_dict())
    assert other.compute() == mean.compute()
    assert mean.set_dtype(torch.float32).scores.dtype == torch.float32


def test_tensors_among_the_parameters_follow_the_inputs(monkeypatch):
    seen = []
    spy = lambda *inputs, **given: seen.append(given) or torch.zeros(1)  # noqa: E731
    monkeypatch.setitem(metrics.METRICS._imported, "deletion", spy)
    mean = ours.Deletion(baseline=torch.zeros(3, 6, 6))
    images = torch.zeros(1, 3, 6, 6, device="meta")
    mean.update(None, images, images[:, 0], torch.zeros(1, dtype=torch.int64))
    assert seen[0]["baseline"].device == images.device


@pytest.mark.parametrize("values", [1, 3])
def test_means_are_plotted(pairs, values):
    pytest.importorskip("matplotlib")
    mean = ours.IoU()
    mean.update(*pairs)
    figure, axes = mean.plot() if values == 1 else mean.plot([mean.compute()] * values)
    assert len(axes.get_lines()[0].get_ydata()) == values
    assert axes.get_lines()[0].get_ydata()[0] == mean.compute().item()
    figure.clear()


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_lightning_trains_a_network_with_all_classes(everything, tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")

    class Trained(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = small_cnn()
            self.collection = MetricCollection({name: build(name) for name in CLASSES})

        def step(self, batch):
            images, targets, maps, masks = batch
            given = {"images": images, "targets": targets, "maps": maps, "masks": masks}
            self.collection.update(model=self.network, explainer=saliency, **given)
            self.log_dict(self.collection, on_step=False, on_epoch=True)
            return torch.nn.functional.cross_entropy(self.network(images), targets)

        def training_step(self, batch, _):
            images, targets, _, _ = batch
            return torch.nn.functional.cross_entropy(self.network(images), targets)

        def validation_step(self, batch, _):
            with torch.enable_grad():
                self.step(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    data = torch.utils.data.TensorDataset(*(everything[name] for name in ("images", "targets", "maps", "masks")))
    loader = torch.utils.data.DataLoader(data, batch_size=6)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        inference_mode=False,
        default_root_dir=tmp_path,
    )
    module = Trained()
    trainer.fit(module, loader, loader)
    found = trainer.callback_metrics
    assert set(found) == set(CLASSES)
    for name in ("iou", "sparseness"):
        assert found[name].item() == pytest.approx(expected(name, everything).nanmean().item())
    saved = next(tmp_path.rglob("*.ckpt"))
    Trained().load_state_dict(torch.load(saved, weights_only=True)["state_dict"])


def test_scores_of_several_processes_are_joined(pairs):
    parts = [ours.IoU(), ours.IoU()]
    for part, rows in zip(parts, (slice(0, 4), slice(4, 11)), strict=True):
        part.update(pairs[0][rows], pairs[1][rows])
    # What torchmetrics calls when it synchronizes: each process gets the scores of all, and its own again afterwards.
    parts[0].distributed_available_fn = lambda: True
    parts[0].dist_sync_fn = lambda scores, group: [scores, parts[1].scores]
    assert parts[0].compute().item() == metrics.iou(*pairs)
    assert torch.equal(parts[0].scores, metrics.iou(pairs[0][:4], pairs[1][:4], reduction="none"))
    with parts[0].sync_context(dist_sync_fn=parts[0].dist_sync_fn, distributed_available=lambda: True):
        assert parts[0].n_valid == 10


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")
def test_nothing_has_no_mean():
    assert math.isnan(ours.IoU().compute().item())
    assert ours.IoU().n_valid == 0


def test_any_metric_by_name(pairs):
    mean = ours.MeanScore("xaibench.metrics.localization.iou:recall", {"threshold": 0.2})
    mean.update(*pairs)
    assert mean.compute().item() == metrics.recall(*pairs, threshold=0.2)
    refused(ValueError, "Unknown metric 'iuo'; did you mean 'iou'", ours.MeanScore, "iuo")


def test_the_package_does_not_load_torchmetrics_and_without_it_the_error_tells_the_command():
    program = """
import sys, xaibench.metrics
print("torchmetrics" in sys.modules)
sys.modules["torchmetrics"] = None
import xaibench.metrics.torchmetrics
"""
    finished = run_fresh(program, check=False)
    assert finished.returncode == 1
    assert 'pip install "xaibench[torchmetrics]"' in finished.stderr.splitlines()[-1]
    assert finished.stdout.strip() == "False"
