"""Relevance propagation one image and one neuron at a time, straight from the equations.

A network is a list of layers: ``("linear", W, b)``, ``("conv", W, b, stride, padding)``, ``("relu",)``,
``("maxpool", size)``, ``("flatten",)``. A convolution is unrolled into one weight vector for each output.
"""

import numpy as np


def unrolled(weight, bias, stride, padding, shape):
    """The matrix ``[outputs, inputs]`` and the biases of a convolution of such an image, and its output shape."""
    filters, _, *kernel = weight.shape
    sides = [(side + 2 * padding - size) // stride + 1 for side, size in zip(shape[1:], kernel, strict=True)]
    matrix = np.zeros((filters, *sides, *shape))
    for f, *place in np.ndindex(filters, *sides):
        for c, *offset in np.ndindex(*weight.shape[1:]):
            source = [i * stride + u - padding for i, u in zip(place, offset, strict=True)]
            if all(0 <= x < side for x, side in zip(source, shape[1:], strict=True)):
                matrix[(f, *place, c, *source)] = weight[(f, c, *offset)]
    biases = np.repeat(bias, np.prod(sides))
    return matrix.reshape(filters * np.prod(sides), -1), biases, (filters, *sides)


def winners(x, size):
    """For each pooled number the flat index of the first largest, and the pooled shape."""
    shape = (len(x), *(side // size for side in x.shape[1:]))
    found = []
    for c, *place in np.ndindex(*shape):
        window = []
        for offset in np.ndindex(*[size] * len(place)):
            source = (c, *(i * size + u for i, u in zip(place, offset, strict=True)))
            window.append((-x[source], source))
        found.append(np.ravel_multi_index(min(window)[1], x.shape))
    return found, shape


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
