"""Draw the pictures of metrics of the map, and of the map and the ground truth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import ot
from drawing import FAINT, GREEN, INK, ORANGE, Drawing, Grid, signed
from example import Example, Metric, number
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from xaibench.metrics import METRICS, chance_level

#: Where the pictures cut the map: between 0.2 and 0.3, so that nothing lies on it.
THRESHOLD = 0.25


def ground_truth(
    e: Example, name: str, about: str, note: str = ""
) -> tuple[Drawing, Callable[[float, float], tuple[float, float]]]:
    """Return a drawing that begins with the map and the outline of the ground truth."""
    drawing = Drawing(f"{name}: {about}")
    return drawing, drawing.grid(e.map, signed, "map", note or "outline: ground truth", e.mask)


def magnitude(value: float) -> str:
    return signed(abs(value))


def transport(e: Example, *, free_inside: bool = False) -> tuple[Drawing, float, float]:
    """Draw the cheapest transport of the map's mass to the ground truth.

    Returns:
        The drawing, the mean distance, and the largest one that a map can have.
    """
    drawing = Drawing("EMD: where the mass of the map goes when it is carried to the ground truth")
    mass, truth = np.abs(e.map) / np.abs(e.map).sum(), e.mask / e.mask.sum()
    drawing.grid(e.map, magnitude, "mass |s| / Σ|s|", "outline: ground truth", e.mask)
    at = drawing.grid(np.zeros((8, 8)), signed, "cheapest plan", "thick lines carry more", e.mask)
    places = np.argwhere(np.ones((8, 8)))
    cost = np.linalg.norm(places[:, None] - places[None], axis=2)
    if free_inside:
        cost[np.ix_(e.mask.ravel(), e.mask.ravel())] = 0.0
    plan = ot.emd(mass.ravel(), truth.ravel() / truth.sum(), cost)
    distance = float((plan * cost).sum())
    for start, end in np.argwhere(plan > 0.002):
        if cost[start, end] > 0:
            drawing.line(at(*places[start]), at(*places[end]), 40 * plan[start, end])
    return drawing, distance, float((cost @ truth.ravel()).max()) if free_inside else float(np.hypot(7, 7))


def cheapest_plan(e: Example, metric: Metric) -> str:
    drawing, distance, _ = transport(e)
    assert abs(metric(e.map, e.mask) - distance) < 1e-9
    return drawing.result(["mean way", "of the mass"], f"{number(distance)} px")


def cheapest_plan_turned(e: Example, metric: Metric) -> str:
    drawing, distance, largest = transport(e)
    return drawing.result(["1 − EMD / δ", f"1 − {number(distance)} / {number(largest)}"], number(metric(e.map, e.mask)))


def cheapest_plan_of_the_mass_outside(e: Example, metric: Metric) -> str:
    drawing, distance, largest = transport(e, free_inside=True)
    assert abs(metric(e.map, e.mask) - (1 - distance / largest)) < 1e-9
    return drawing.result(
        ["1 − d / d max", f"1 − {number(distance)} / {number(largest)}"], number(1 - distance / largest)
    )


def marked(drawing: Drawing, e: Example, chosen: NDArray[np.bool_], title: str, note: str) -> None:
    """Mark chosen pixels inside (green) and outside (orange) the ground truth, and missed ones (gray)."""
    kinds = np.where(chosen & e.mask, 2.0, np.where(chosen, 1.0, np.where(e.mask, 0.5, 0.0)))
    colors = {2.0: GREEN, 1.0: ORANGE, 0.5: "#d5dae0", 0.0: "#ffffff"}
    drawing.grid(kinds, colors.__getitem__, title, note, e.mask)


def top_pixels(e: Example, metric: Metric) -> str:
    drawing = Drawing("Top-k precision: the eight most important pixels, those in the ground truth green")
    drawing.grid(e.map, magnitude, "|map|", "outline: ground truth", e.mask)
    chosen = np.zeros(64, dtype=bool)
    chosen[np.argsort(-np.abs(e.map).ravel(), kind="stable")[:8]] = True
    marked(drawing, e, chosen.reshape(8, 8), "top 8 pixels", "8 are in the ground truth")
    inside = int((chosen.reshape(8, 8) & e.mask).sum())
    return drawing.result([f"{inside} inside", "of 8"], number(metric(e.map, e.mask)))


def mass_inside(e: Example, metric: Metric) -> str:
    drawing = Drawing("Mass accuracy: the share of the map's mass inside the ground truth")
    drawing.grid(e.map, magnitude, "|map|", "outline: ground truth", e.mask)
    inside, total = np.abs(e.map)[e.mask].sum(), np.abs(e.map).sum()
    place = drawing.axes("mass", "", width=40)
    for low, high, color in ((0, inside / total, GREEN), (inside / total, 1, ORANGE)):
        drawing.curve([place(0.1, low), place(0.1, high), place(0.9, high), place(0.9, low)], fill=color)
    return drawing.result([f"{inside:.1f} inside", f"of {total:.1f}"], number(metric(e.map, e.mask)))


def cut_map(
    numerator: str, denominator: str, terms: Callable[[int, int, int], tuple[int, int]]
) -> Callable[[Example, Metric], str]:
    """Return a function that draws a metric of the map cut at a threshold."""

    def draw(e: Example, metric: Metric) -> str:
        chosen = e.map > THRESHOLD
        drawing, _ = ground_truth(e, metric.__name__, f"the map cut at {THRESHOLD} against the ground truth")
        marked(drawing, e, chosen, f"map > {THRESHOLD}", "green: both")
        above, below = terms(int((chosen & e.mask).sum()), int(chosen.sum()), int(e.mask.sum()))
        score = metric(e.map, e.mask, threshold=THRESHOLD)
        assert abs(score - above / below) < 1e-12
        return drawing.result([numerator, f"/ {denominator}", f"{above} / {below}"], number(score), 150)

    return draw


cut_map_of_either = cut_map("green", "any color", lambda both, chosen, truth: (both, chosen + truth - both))
cut_map_of_the_marked = cut_map("green", "(green + orange)", lambda both, chosen, truth: (both, chosen))
cut_map_of_the_truth = cut_map("green", "(green + gray)", lambda both, chosen, truth: (both, truth))
cut_map_of_both_sizes = cut_map(
    "2 · green", "(map + ground truth)", lambda both, chosen, truth: (2 * both, chosen + truth)
)


def largest_pixel(e: Example, metric: Metric) -> str:
    drawing = Drawing("Pointing game: the largest pixel lies beside the ground truth, one pixel off")
    at = drawing.grid(e.map, signed, "map", "ring: the largest pixel", e.mask)
    peak = np.unravel_index(int(e.map.argmax()), e.map.shape)
    drawing.dot(at(*peak), 6, INK, hollow=True)
    grown = distance_transform_edt(~e.mask) <= 1
    at = drawing.grid(grown * 0.25, signed, "tolerance 1", "the mask, dilated", grown)
    drawing.dot(at(*peak), 6, INK, hollow=True)
    strict, lenient = metric(e.map, e.mask), metric(e.map, e.mask, tolerance=1)
    return drawing.result(
        [f"tolerance 0: {strict:g}", f"tolerance 1: {lenient:g}"], "a miss" if strict == 0 else "a hit"
    )


def steps(e: Example) -> tuple[Grid, Grid]:
    """Return the numbers of pixels outside and inside at each threshold of the map, in descending order."""
    values = np.unique(e.map)[::-1]
    inside = [0, *(int((e.mask & (e.map >= value)).sum()) for value in values)]
    outside = [0, *(int((~e.mask & (e.map >= value)).sum()) for value in values)]
    return np.array(outside, dtype=float), np.array(inside, dtype=float)


def every_threshold_outside_and_inside(e: Example, metric: Metric) -> str:
    drawing, _ = ground_truth(e, "ROC AUC", "the receiver operating characteristic of the map's pixels")
    outside, inside = steps(e)
    place = drawing.axes("every threshold", "share of the outside marked →")
    curve = [place(x, y) for x, y in zip(outside / outside[-1], inside / inside[-1], strict=True)]
    drawing.curve([*curve, place(1, 0)], fill="#cfe8da")
    drawing.curve([place(0, 0), place(1, 1)], FAINT, dash="3 3")
    drawing.curve(curve, GREEN)
    return drawing.result(["area below the curve", "(dashed: chance)"], number(metric(e.map, e.mask)), 140)


def every_threshold_precision(e: Example, metric: Metric) -> str:
    drawing, _ = ground_truth(e, "Average precision", "precision at each recall, as steps")
    outside, inside = steps(e)
    place = drawing.axes("every threshold", "recall →")
    points = []
    for n in range(1, len(inside)):
        height = inside[n] / (inside[n] + outside[n])
        points += [place(inside[n - 1] / inside[-1], height), place(inside[n] / inside[-1], height)]
    drawing.curve([place(0, 0), *points, place(1, 0)], fill="#cfe8da")
    chance = float(e.mask.mean())
    drawing.curve([place(0, chance), place(1, chance)], FAINT, dash="3 3")
    drawing.curve(points, GREEN)
    return drawing.result(["area below the steps", "(dashed: chance)"], number(metric(e.map, e.mask)), 140)


def score_chance_and_best(e: Example, metric: Metric) -> str:
    raw = METRICS.resolve(metric.info.skill_of)
    given = metric.info.skill_parameters
    drawing, _ = ground_truth(e, metric.info.label, "how far the score is from that of noise, on the way to the best")
    drawing.grid(np.random.default_rng(0).random((8, 8)), magnitude, "noise", "one of many", e.mask)
    score, chance = raw(e.map, e.mask, **given), float(chance_level(metric.info.skill_of, e.mask, given)[0])
    place = drawing.axes(raw.info.label, f"gray: chance, {number(chance)}", width=90)
    for low, high, color in ((0, chance, FAINT), (chance, score, GREEN)):
        drawing.curve([place(0.2, low), place(0.2, high), place(0.8, high), place(0.8, low)], fill=color)
    skill = metric(e.map, e.mask)
    assert abs(skill - (score - chance) / (1 - chance)) < 1e-12
    return drawing.result(["green / not gray", f"{number(score - chance)} / {number(1 - chance)}"], number(skill), 150)


def sorted_mass(e: Example, metric: Metric) -> str:
    drawing = Drawing("Sparseness: how far the sorted mass of the map bends away from that of a constant map")
    drawing.grid(e.map, magnitude, "|map|", "few pixels have most")
    mass = np.sort(np.abs(e.map).ravel())
    shares = np.concatenate([[0.0], mass.cumsum() / mass.sum()])
    place = drawing.axes("mass of the least pixels", "share of the pixels →")
    curve = [place(n / 64, share) for n, share in enumerate(shares)]
    drawing.curve([*curve, place(0, 0)], fill="#cfe8da")
    drawing.curve([place(0, 0), place(1, 1)], FAINT, dash="3 3")
    drawing.curve(curve, GREEN)
    return drawing.result(["twice the green area", "(dashed: constant map)"], number(metric(e.map)), 160)


def mass_of_each_pixel(e: Example, metric: Metric) -> str:
    drawing = Drawing("Complexity: the entropy of the map's mass, beside that of a constant map")
    drawing.grid(e.map, magnitude, "|map|")
    mass = np.sort(np.abs(e.map).ravel() / np.abs(e.map).sum())[::-1]
    place = drawing.axes("mass of each pixel", "pixels, largest first →")
    for n, share in enumerate(mass):
        if share > 0:
            left, right, high = n / 64, (n + 0.8) / 64, share / mass.max()
            drawing.curve([place(left, 0), place(left, high), place(right, high), place(right, 0)], fill=GREEN)
    level = 1 / 64 / mass.max()
    drawing.curve([place(0, level), place(1, level)], FAINT, dash="3 3")
    return drawing.result(["entropy in nats", f"(dashed, constant: {number(np.log(64))})"], number(metric(e.map)), 165)
