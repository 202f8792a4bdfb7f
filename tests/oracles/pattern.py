"""PatternNet and PatternAttribution one neuron at a time, straight from the paper and from what iNNvestigate does."""

import numpy as np
from oracles.propagation import forward


def samples_of(layers, index, images):
    """Inputs ``[samples, inputs]`` of the neurons of layer ``index``; a convolution has one for each position."""
    found = []
    for image in images:
        x, _ = forward(layers[:index], image)
        if layers[index][0] == "linear":
            found.append(x.reshape(-1))
            continue
        _, weight, _, stride, padding = layers[index]
        height, width = weight.shape[2:]
        x = np.pad(x, ((0, 0), (padding, padding), (padding, padding)))
        for i in range(0, x.shape[1] - height + 1, stride):
            for j in range(0, x.shape[2] - width + 1, stride):
                found.append(x[:, i : i + height, j : j + width].reshape(-1))
    return np.array(found)


def patterns(layers, images, signal):
    """The patterns of each layer that has weights, shaped as they are."""
    found = []
    for index, (kind, *rest) in enumerate(layers):
        if kind not in ("linear", "conv"):
            continue
        weight, bias = rest[:2]
        x, result = samples_of(layers, index, images), []
        for w, b in zip(weight.reshape(len(weight), -1), bias, strict=True):
            y = x @ w
            active = y + b > 0 if signal == "two_component" else np.full(len(y), True)
            if not active.any():
                result.append(0 * w)
                continue
            covariance = (x * y[:, None])[active].mean(0) - x[active].mean(0) * y.mean()
            result.append(covariance / (w @ covariance))
        found.append(np.array(result).reshape(weight.shape))
    return found


def project(layers, weights, image, target):
    """The gradient of the target's logit, times its sign, with ``weights`` in the way back."""
    logits, steps = forward(layers, image)
    # The same network with other weights and the same input shapes, for its unrolled matrices.
    weights = iter(weights)
    replaced = [(layer[0], next(weights), *layer[2:]) if layer[0] in ("linear", "conv") else layer for layer in layers]
    _, other = forward(replaced, image)
    signal = np.zeros_like(logits)
    signal[target] = np.sign(logits[target])
    for (kind, x, found, _), (_, _, matrix, _) in zip(reversed(steps), reversed(other), strict=True):
        signal = signal.reshape(-1)
        if kind == "relu":
            signal = signal * (x.reshape(-1) > 0)
        elif kind == "maxpool":
            before = np.zeros(x.size)
            for index, s in zip(found, signal, strict=True):
                before[index] += s
            signal = before
        else:
            before = np.zeros(x.size)
            for j, s in enumerate(signal):
                before += s * matrix[j]
            signal = before
    return signal.reshape(image.shape)
