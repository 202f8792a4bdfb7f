"""Draw the pictures of metrics that call the model or the explainer."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from drawing import FAINT, GREEN, INK, ORANGE, Drawing, Point, signed
from example import Example, Metric, contrast, number, pixels, replaced
from numpy.typing import NDArray
from torch import Tensor, nn

import xaibench as xb
from xaibench.metrics.faithfulness.road import imputed
from xaibench.metrics.shared.model_scores import random_generator
from xaibench.metrics.shared.perturb import blurred, unit_scaled

#: Of the picture of the attack: large enough to be seen.
EPSILON = 0.3
#: Of the picture of sensitivity-n: pixels per set.
SUBSET = 16


def pixels_changed(e: Example, metric: Metric, *, reveal: bool) -> str:
    score, curves = metric(*e.asked, steps=64, return_curves=True)
    drawing = Drawing(f"{metric.__name__.capitalize()}: the image on the way, and the probability of its class")
    other = blurred(e.image) if reveal else torch.zeros_like(e.image)
    for count in (0, 6, 16):
        shown = replaced(e, count, other, reveal=reveal)
        title = f"{count} of 64 {'put in' if reveal else 'gone'}"
        drawing.grid(pixels(shown), contrast, title, f"p = {number(e.probability(shown))}", cell=11)
    place = drawing.axes("probability p", f"share {'put in' if reveal else 'taken away'} →", width=130, height=88)
    points = [place(float(x), float(y)) for x, y in zip(curves.fractions, curves.values[0], strict=True)]
    drawing.curve([place(0, 0), *points, place(1, 0)], fill="#cfe8da")
    drawing.curve(points, GREEN)
    return drawing.result(["area"], number(score), 60)


pixels_taken_away = functools.partial(pixels_changed, reveal=False)
pixels_put_in = functools.partial(pixels_changed, reveal=True)


def dimmed(e: Example, name: str) -> tuple[Drawing, float, float]:
    drawing = Drawing(f"{name}: the image dimmed where the map is low")
    weight = unit_scaled(torch.from_numpy(e.map)[None])
    darker = e.image * weight[:, None]
    before, after = e.probability(e.image), e.probability(darker)
    drawing.grid(pixels(e.image), contrast, "image", f"y = {number(before)}")
    drawing.sign("×")
    drawing.grid(pixels(weight), signed, "map, scaled to [0, 1]", "lowest 0, largest 1")
    drawing.sign("=")
    drawing.grid(pixels(darker), contrast, "dimmed image", f"o = {number(after)}")
    return drawing, before, after


def dimmed_image_drop(e: Example, metric: Metric) -> str:
    drawing, before, after = dimmed(e, "Average drop")
    lines = ["100 · (y − o) / y", f"100 · {number(before - after)} / {number(before)}"]
    return drawing.result(lines, f"{metric(*e.asked):.1f} %")


def dimmed_image_rise(e: Example, metric: Metric) -> str:
    drawing, before, after = dimmed(e, "Increase in confidence")
    return drawing.result(["o > y?", f"{number(after)} > {number(before)}"], f"{metric(*e.asked):g}")


def top_alone_or_gone(e: Example, metric: Metric, *, reveal: bool) -> str:
    drawing = Drawing(
        f"{metric.__name__.capitalize()}: the image {'with only' if reveal else 'without'} its top 20 % of pixels"
    )
    shown = replaced(e, 13, torch.zeros_like(e.image), reveal=reveal)
    drawing.grid(pixels(e.image), contrast, "image", f"p = {number(e.probability(e.image))}", e.mask)
    drawing.sign("−")
    title = "only the top 20 %" if reveal else "without the top 20 %"
    drawing.grid(pixels(shown), contrast, title, f"p = {number(e.probability(shown))}", e.mask)
    return drawing.result(
        [f"{number(e.probability(e.image))} − {number(e.probability(shown))}"], number(metric(*e.asked))
    )


without_the_top = functools.partial(top_alone_or_gone, reveal=False)
only_the_top = functools.partial(top_alone_or_gone, reveal=True)


def attacked_pixels(e: Example, metric: Metric) -> str:
    drawing = Drawing("Adversarial: where the attack may change the image, and on as many random pixels")
    top = replaced(e, 6, torch.ones_like(e.image), reveal=False) != e.image
    drawing.grid(pixels(e.image), contrast, "image", f"p = {number(e.probability(e.image))}", e.mask)
    drawing.grid(pixels(top) * 0.6, signed, "attacked: top 10 %", f"6 pixels, by at most {EPSILON}", e.mask)
    drop = metric(*e.asked, epsilon=EPSILON)
    control = metric(*e.asked, epsilon=EPSILON, pixels="random")
    return drawing.result(["drop under attack", f"(6 random pixels: {number(control)})"], number(drop), 150)


def erased_squares(e: Example, metric: Metric) -> str:
    drawing = Drawing("Infidelity: what the map predicts for each erased square, and how much the score falls")
    at = drawing.grid(e.map, signed, "map", "one of the squares", np.zeros((8, 8), dtype=bool))
    square = np.zeros((8, 8), dtype=bool)
    square[1:3, 1:3] = True
    x, y = at(0.5, 0.5)
    drawing.curve([(x, y), (x + 30, y), (x + 30, y + 30), (x, y + 30), (x, y)], INK)
    whole, found = e.probability(e.image), []
    for side in (1, 2, 3):  # those of at most 10/28 of the image, all of them
        for row in range(9 - side):
            for column in range(9 - side):
                erased = e.image.clone()
                erased[..., row : row + side, column : column + side] = 0
                predicted = e.map[row : row + side, column : column + side].sum()
                found.append((predicted, whole - e.probability(erased)))
    sums, falls = np.array(found).T
    beta = (sums * falls).mean() / (sums**2).mean()
    score = metric(*e.asked)
    assert abs(((beta * sums - falls) ** 2).mean() - score) < 1e-6
    low, high = min(falls.min(), (beta * sums).min()), max(falls.max(), (beta * sums).max())
    place = drawing.axes("each dot a square", "β · sum of the map in it →")
    drawing.curve([place(0, 0), place(1, 1)], FAINT, dash="3 3")
    dots(drawing, place, (beta * sums - low) / (high - low), (falls - low) / (high - low))
    return drawing.result(["up: fall of p", "mean squared distance", "from the dashed line"], f"{score:.4f}", 150)


def dots(
    drawing: Drawing,
    place: Callable[[float, float], Point],
    across: NDArray[np.float64],
    up: NDArray[np.float64],
) -> None:
    for one, other in zip(across, up, strict=True):
        drawing.dot(place(one, other), 2, GREEN)


def erased_subsets(e: Example, metric: Metric) -> str:
    drawing = Drawing("Sensitivity-n: the sum of the map over erased pixels, and how much the score falls")
    chosen = [random_generator(0, index).permutation(64)[:SUBSET] for index in range(50)]
    erased = e.image.clone().flatten()
    erased[chosen[0]] = 0
    title = f"{SUBSET} pixels erased"
    drawing.grid(pixels(erased), contrast, title, f"p = {number(e.probability(erased))}", e.mask)
    found = []
    for subset in chosen:
        erased = e.image.clone().flatten()
        erased[subset] = 0
        found.append((e.map.ravel()[subset].sum(), e.logit(e.image) - e.logit(erased)))
    both = np.array(found).T
    score = metric(*e.asked, fraction=SUBSET / 64)
    assert abs(np.corrcoef(both)[0, 1] - score) < 1e-5
    sums, falls = (both - both.min(1, keepdims=True)) / np.ptp(both, axis=1, keepdims=True)
    dots(drawing, drawing.axes("each dot a set of pixels", "sum of the map in it →"), sums, falls)
    return drawing.result(["up: fall of the logit", "correlation"], number(score), 130)


def imputed_pixels(e: Example, metric: Metric) -> str:
    drawing = Drawing("ROAD: the image with its most and its least relevant pixels imputed, and the two curves")
    order = np.argsort(-e.map.ravel(), kind="stable")
    for title, chosen in (("top 30 % imputed", order[:19]), ("last 30 % imputed", order[-19:])):
        removed = np.zeros(64, dtype=bool)
        removed[chosen] = True
        shown = torch.from_numpy(imputed(e.image[0].double().numpy(), removed.reshape(8, 8)))
        drawing.grid(pixels(shown), contrast, title, f"p = {number(e.probability(shown))}", e.mask)
    whole = e.probability(e.image)
    place = drawing.axes("probability p", "percent imputed →", width=120)
    ends = {}
    for order_name, color in (("lerf", GREEN), ("morf", ORANGE)):
        _, curves = metric(*e.asked, order=order_name, return_curves=True)
        sign = 1 if order_name == "lerf" else -1
        values = [whole, *(whole + sign * float(value) for value in curves.values[0])]
        ends[order_name] = [place(x, y) for x, y in zip([0.0, *curves.fractions.tolist()], values, strict=True)]
        drawing.curve(ends[order_name], color)
    return drawing.result(
        ["half the mean distance", "green (least first)", "to orange (most first)"], number(metric(*e.asked)), 150
    )


class Watched:
    """Input × Gradient that records its images and maps."""

    def __init__(self) -> None:
        self.explainer = xb.explainers.build("input_x_gradient")
        self.asked: list[Tensor] = []
        self.maps: list[Tensor] = []

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps of the logit, whose gradient is constant, so that only changes of the image show."""
        maps = xb.explain(self.explainer, model, images, targets, output="logit", device="cpu")
        self.asked.append(images.detach())
        self.maps.append(maps.detach())
        return maps


def beside(watched: Watched, about: str, title: str) -> Drawing:
    """Draw the image and its map, and the perturbed image that changed the map most."""
    drawing = Drawing(about)
    picked = int(np.argmax([float((found - watched.maps[0]).norm()) for found in watched.maps]))
    most = float(watched.maps[0].abs().max())
    for image, found, title_of in (
        (watched.asked[0], watched.maps[0], "image"),
        (watched.asked[picked], watched.maps[picked], title),
    ):
        drawing.grid(pixels(image), contrast, title_of, cell=12)
        drawing.grid(pixels(found) / most, signed, "its map", cell=12)
    return drawing


def maps_without_pixels(e: Example, metric: Metric) -> str:
    watched = Watched()
    score = metric(watched, e.model, e.image, e.target, relative=True)
    about = "Data consistency: the map before and after random pixels are removed"
    drawing = beside(watched, about, "10 % removed")
    return drawing.result(["mean |difference|", "/ mean |map|,", "of ten draws"], number(score))


def maps_under_noise(e: Example, metric: Metric) -> str:
    watched = Watched()
    score = metric(watched, e.model, e.image, e.target, radius=0.2)
    about = "Sensitivity: the map before and after a little noise is added to the image"
    drawing = beside(watched, about, "with noise")
    return drawing.result(["‖difference‖ / ‖map‖,", "largest of ten draws"], number(score), 140)


def maps_of_forgetting_layers(e: Example, metric: Metric) -> str:
    watched = Watched()
    score, curves = metric(watched, e.model, e.image, e.target, return_curves=True)
    drawing = Drawing("Parameter randomization: maps of the network with more and more random layers")
    titles = ["as trained", "last layer random", "all layers random"]
    notes = ["", *(f"ρ = {number(float(value))}" for value in curves.values[0])]
    for found, title, note in zip(watched.maps, titles, notes, strict=True):
        drawing.grid(pixels(found) / float(found.abs().max()), signed, title, note)
    return drawing.result(["mean of ρ"], number(score), 80)
