"""The coalitions that LIME and Kernel SHAP draw, and the same ones for Captum."""

import torch

from xaibench.tensors.random_numbers import sample_generators


def recorded_masks(explainer, images, features):
    """The coalitions that our explainer draws, image by image."""
    generators = sample_generators(explainer.seed, images)
    return [explainer._coalitions(rng, explainer.n_samples, features) for rng in generators]


def generator_of(masks):
    """A Captum ``perturb_func`` that hands out given coalitions: all of one sample, then all of the next."""
    rows = iter([torch.from_numpy(row[None]).long() for sample in masks for row in sample])
    return lambda *_, **__: next(rows)
