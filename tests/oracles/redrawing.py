"""Drawing pixels of a Gaussian mixture again, one image and one block at a time, from the textbook's formulas."""

import numpy as np
from scipy.stats import multivariate_normal


def conditional_draws(image, block, means, covariances, shares, count, rng):
    """``count`` draws ``[count, b]`` of a block of one flattened image, given all its other pixels."""
    others = np.setdiff1d(np.arange(image.size), block)
    odds, centers, left = [], [], []
    for mean, covariance, share in zip(means, covariances, shares, strict=True):
        among, across = covariance[np.ix_(others, others)], covariance[np.ix_(block, others)]
        if len(others):
            weights = across @ np.linalg.inv(among)
            odds.append(share * multivariate_normal(mean[others], among).pdf(image[others]))
        else:
            weights = across
            odds.append(share)
        centers.append(mean[block] + weights @ (image[others] - mean[others]))
        left.append(covariance[np.ix_(block, block)] - weights @ across.T)
    return _draws(np.array(odds) / np.sum(odds), centers, left, count, rng)


def marginal_draws(image, block, means, covariances, shares, count, rng):
    """The same of whole images, of which only the block is kept."""
    return _draws(shares, means, covariances, count, rng)[:, block]


def _draws(odds, centers, covariances, count, rng):
    kinds = rng.choice(len(odds), size=count, p=odds)
    of_each = [rng.multivariate_normal(*each, size=count) for each in zip(centers, covariances, strict=True)]
    return np.array(of_each)[kinds, np.arange(count)]


def reliance(function, image, block, draw, count, rng):
    """The mean change of ``function([M, D]) -> [M]``, and its standard error, by as many draws."""
    redrawn = np.repeat(image[None], count, axis=0)
    redrawn[:, block] = draw(image, block, count=count, rng=rng)
    change = np.abs(function(redrawn) - function(image[None]))
    return change.mean(), change.std(ddof=1) / np.sqrt(count)


def shares(saliency, truth, reliance):
    """The three parts of a map's mass, pixel by pixel."""
    mass = [abs(value) / sum(map(abs, saliency)) for value in saliency]
    relied = [value / sum(reliance) for value in reliance]
    parts = [0.0, 0.0, 0.0]
    for one, faithful, true in zip(mass, relied, truth, strict=True):
        if true:
            parts[0] += one
        else:
            parts[1] += min(one, faithful)
            parts[2] += max(one - faithful, 0.0)
    return parts
