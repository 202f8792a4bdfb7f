"""Classifiers and their training.

:func:`open_network` opens a network by a reference, :func:`build` makes a model by name, :func:`fit` trains it,
:func:`fit_many` trains several of one architecture together, :func:`fit_head` trains the last layer of a pretrained
network (or all layers), :func:`fine_tune_for_deletion` trains on images with deleted parts, and :func:`accuracy`
evaluates. Your own model is any ``torch.nn.Module`` from images ``[N, C, H, W]`` to logits ``[N, K]``; :func:`build`
makes it from ``"package.module:name"``: a class, a factory ``(in_shape, num_classes) -> Module``, or a module.
:class:`Wrapped` adapts the inputs and outputs of a network, and :func:`zero_shot_head` makes a classifier of an image
encoder and text embeddings.
"""

from xaibench.models.building import Wrapped, build
from xaibench.models.networks.base import Network, he_normal_, zero_shot_head
from xaibench.models.networks.class_folding import FOLDS, Folded
from xaibench.models.networks.pretrained import Classifier, Normalize
from xaibench.models.networks.pretrained_weights import WeightsNotFoundError
from xaibench.models.opening.references import open_network
from xaibench.models.opening.sources import OpenedNetwork, Preprocessing
from xaibench.models.registered import MODELS
from xaibench.models.training.deletion_training import fine_tune_for_deletion
from xaibench.models.training.fitting import Training, TrainingDivergedError, accuracy, fit, fit_many
from xaibench.models.training.head_training import find_head, fit_head

__all__ = [
    "FOLDS",
    "MODELS",
    "Classifier",
    "Folded",
    "Network",
    "Normalize",
    "OpenedNetwork",
    "Preprocessing",
    "Training",
    "TrainingDivergedError",
    "WeightsNotFoundError",
    "Wrapped",
    "accuracy",
    "build",
    "find_head",
    "fine_tune_for_deletion",
    "fit",
    "fit_head",
    "fit_many",
    "he_normal_",
    "open_network",
    "zero_shot_head",
]
