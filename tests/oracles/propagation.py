"""Relevance propagation one image and one neuron at a time, straight from the equations.

A network is a list of layers: ``("linear", W, b)``, ``("conv", W, b, stride, padding)``, ``("relu",)``,
``("maxpool", size)``, ``("flatten",)``. A convolution is unrolled into one weight vector for each output.
"""

import numpy as np


def unrolled(weight, bias, stride, padding, shape):
    """The matrix ``[outputs, inputs]`` and the biases of a convolution of such an image, and its output shape."""
    filters, channels, height, width = weight.shape
    rows = (shape[1] + 2 * padding - height) // stride + 1
    columns = (shape[2] + 2 * padding - width) // stride + 1
    matrix = np.zeros((filters, rows, columns, *shape))
    for f in range(filters):
        for i in range(rows):
            for j in range(columns):
                for c in range(channels):
                    for u in range(height):
                        for v in range(width):
                            y, x = i * stride + u - padding, j * stride + v - padding
                            if 0 <= y < shape[1] and 0 <= x < shape[2]:
                                matrix[f, i, j, c, y, x] = weight[f, c, u, v]
    biases = np.repeat(bias, rows * columns)
    return matrix.reshape(filters * rows * columns, -1), biases, (filters, rows, columns)


def winners(x, size):
    """For each pooled number the flat index of the first largest, and the pooled shape."""
    channels, height, width = x.shape
    rows, columns = height // size, width // size
    found = []
    for c in range(channels):
        for i in range(rows):
            for j in range(columns):
                window = [(-x[c, i * size + u, j * size + v], u, v) for u in range(size) for v in range(size)]
                _, u, v = min(window)
                found.append(np.ravel_multi_index((c, i * size + u, j * size + v), x.shape))
    return found, (channels, rows, columns)


def forward(layers, image):
    """The logits, and for the way back each layer as ``(kind, input, matrix or indices, biases)``."""
    x, steps = image, []
    for kind, *rest in layers:
        if kind == "flatten":
            x = x.reshape(-1)
        elif kind == "relu":
            steps.append((kind, x, None, None))
            x = np.maximum(x, 0)
        elif kind == "maxpool":
            found, shape = winners(x, *rest)
            steps.append((kind, x, found, None))
            x = x.reshape(-1)[found].reshape(shape)
        else:
            matrix, biases, shape = (*rest, None) if kind == "linear" else unrolled(*rest, x.shape)
            steps.append(("linear", x, matrix, biases))
            x = matrix @ x.reshape(-1) + biases
            x = x if shape is None else x.reshape(shape)
    return x, steps


def share(rule, x, w, b, relevance, *, epsilon=0, gamma=0, alpha=1, beta=0, low=None, high=None):
    """What the inputs of one neuron get of its relevance."""
    c = x * w
    if rule == "epsilon":
        z = c.sum() + b
        return c / (z + (epsilon if z >= 0 else -epsilon)) * relevance
    if rule == "gamma":
        z = c.sum() + b
        favored, favored_bias = np.where(c * z > 0, c, 0), b if b * z > 0 else 0
        total = c.sum() + b + gamma * (favored.sum() + favored_bias)
        return (c + gamma * favored) / total * relevance if z else 0 * c
    if rule in ("z+", "alpha_beta"):
        positive, negative = c[c > 0].sum() + max(b, 0), c[c < 0].sum() + min(b, 0)
        result = np.zeros_like(c)
        for i in range(len(c)):
            if c[i] > 0:
                result[i] = alpha * c[i] / positive * relevance
            elif c[i] < 0:
                result[i] = -beta * c[i] / negative * relevance
        return result
    if rule == "zB":
        terms = c - low * np.maximum(w, 0) - high * np.minimum(w, 0)
        return terms / terms.sum() * relevance
    assert rule == "w2"
    return w**2 / (w**2).sum() * relevance


def relevance(layers, image, target, rules, *, bias=True, positive_start=False, condition=None, **parameters):
    """The relevance of each pixel, with one rule for each linear layer, the first first.

    ``condition`` is the number of a linear layer and a function of the relevance of its outputs, a flat array.
    """
    logits, steps = forward(layers, image)
    result = np.zeros_like(logits)
    result[target] = max(logits[target], 0) if positive_start else logits[target]
    rules = list(rules)
    for kind, x, matrix, biases in reversed(steps):
        result = result.reshape(-1)
        if kind == "maxpool":
            before = np.zeros(x.size)
            for index, r in zip(matrix, result, strict=True):
                before[index] += r
            result = before
        elif kind == "linear":
            rule, before = rules.pop(), np.zeros(x.size)
            if condition and condition[0] == len(rules):
                result = condition[1](result)
            for j, r in enumerate(result):
                if r != 0:
                    before += share(rule, x.reshape(-1), matrix[j], biases[j] if bias else 0.0, r, **parameters)
            result = before
    assert not rules
    return result.reshape(image.shape)
