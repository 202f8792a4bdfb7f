"""A small network, and the same for the authors' Xplique, which asks one of TensorFlow."""

import torch
from torch import nn


def small_network(size):
    """Two layers, ``[N, 2, H, W]`` to ``[N, 2]``, H · W = ``size``."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(2 * size, 4), nn.Tanh(), nn.Linear(4, 2)).double().eval()


def as_xplique_calls_it(model):
    """The network for images ``[N, H, W, C]`` in float32."""
    import tensorflow as tf

    (first, one), (second, two) = ([p.detach().float().numpy() for p in model[i].parameters()] for i in (1, 3))

    def call(images):
        flat = tf.reshape(tf.transpose(images, (0, 3, 1, 2)), (-1, first.shape[1]))
        return tf.tanh(flat @ first.T + one) @ second.T + two

    return call
