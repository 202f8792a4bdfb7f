"""Tests of faithfulness that hold, one image, one pixel and one pair at a time, written from the papers."""

from oracles.perturbation import area, pixel_order, probability


def flipped(model, image, order, target, steps):
    """Pixel flipping: the pixels of ``order`` become zero in equal steps. The shares and the probabilities there."""
    current, shares, scores, done = image.clone(), [0.0], [probability(model, image, target)], 0
    for step in range(1, steps + 1):
        until = round(step * len(order) / steps)
        for i, j in order[done:until]:
            current[:, i, j] = 0
        done = until
        shares.append(done / len(order))
        scores.append(probability(model, current, target))
    return shares, scores


def srg(model, image, saliency, target, steps):
    """Blücher et al. (2024): least influential first minus most influential first."""
    order = pixel_order(saliency)
    most = area(*flipped(model, image, order, target, steps))
    least = area(*flipped(model, image, order[::-1], target, steps))
    return least - most
