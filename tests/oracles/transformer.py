"""A vision transformer in plain numpy, one image and one number at a time, and what the papers make of it.

Relevance is carried back as the equations have it: layer by layer, as relevance, never as a gradient. The gradient by
the attention is a difference of two forward passes.
"""

import math

import numpy as np


def weights_of(model, heads):
    """The weights of torchvision's VisionTransformer, or timm's, under names of ours."""
    state = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    timm = "patch_embed.proj.weight" in state
    own = {
        "patches": "patch_embed.proj" if timm else "conv_proj",
        "norm": "norm" if timm else "encoder.ln",
        "head": "head" if timm else "heads.head",
    }
    block = "blocks.{}." if timm else "encoder.layers.encoder_layer_{}."
    inner = {
        "norm1": "norm1" if timm else "ln_1",
        "qkv": "attn.qkv." if timm else "self_attention.in_proj_",
        "out": "attn.proj" if timm else "self_attention.out_proj",
        "norm2": "norm2" if timm else "ln_2",
        "up": "mlp.fc1" if timm else "mlp.0",
        "down": "mlp.fc2" if timm else "mlp.3",
    }

    def pair(name):
        name = name if name.endswith((".", "_")) else f"{name}."
        return state[f"{name}weight"], state[f"{name}bias"]

    depth = len({name.split(".")[1 if timm else 2] for name in state if name.startswith(block.split("{")[0])})
    return {
        **{key: pair(name) for key, name in own.items()},
        "token": state["cls_token" if timm else "class_token"][0, 0],
        "positions": state["pos_embed" if timm else "encoder.pos_embedding"][0],
        "blocks": [{key: pair(block.format(i) + name) for key, name in inner.items()} for i in range(depth)],
        "heads": heads,
        "eps": 1e-6,
    }


def cut(image, size):
    """The patches of an image ``[C, H, W]``, row by row: ``[P, C·size·size]``."""
    rows, columns = image.shape[1] // size, image.shape[2] // size
    return np.stack(
        [
            image[:, r * size : (r + 1) * size, c * size : (c + 1) * size].reshape(-1)
            for r in range(rows)
            for c in range(columns)
        ]
    )


def normalized(x, weight, bias, eps):
    return (x - x.mean()) / math.sqrt(((x - x.mean()) ** 2).mean() + eps) * weight + bias


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def forward(net, image, nudge=None, upto=None):
    """The logits, and of each block what it computed.

    ``nudge=(block, head, row, column, by)`` adds to one weight of the attention. ``upto`` blocks run, and what goes on
    is the mean of their tokens.
    """
    kernel, bias = net["patches"]
    patches = cut(image, kernel.shape[-1]) @ kernel.reshape(len(kernel), -1).T + bias
    x = np.vstack([net["token"], patches]) + net["positions"]
    trace = {"patches": patches, "blocks": []}
    for number, block in enumerate(net["blocks"][:upto]):
        step = {"x": x}
        step["n1"] = np.stack([normalized(row, *block["norm1"], net["eps"]) for row in x])
        qkv = step["n1"] @ block["qkv"][0].T + block["qkv"][1]
        size = x.shape[1] // net["heads"]
        step["heads"], mixed = [], []
        for h in range(net["heads"]):
            q, k, v = (part[:, h * size : (h + 1) * size] for part in np.split(qkv, 3, 1))
            scores = q @ k.T
            weights = np.stack([softmax(row / math.sqrt(size)) for row in scores])
            if nudge is not None and nudge[:2] == (number, h):
                weights[nudge[2], nudge[3]] += nudge[4]
            step["heads"].append((q, k, v, scores, weights))
            mixed.append(weights @ v)
        step["mixed"] = np.hstack(mixed)
        step["attended"] = step["mixed"] @ block["out"][0].T + block["out"][1]
        step["y"] = x + step["attended"]
        step["n2"] = np.stack([normalized(row, *block["norm2"], net["eps"]) for row in step["y"]])
        step["up"] = step["n2"] @ block["up"][0].T + block["up"][1]
        step["gelu"] = gelu(step["up"])
        step["down"] = step["gelu"] @ block["down"][0].T + block["down"][1]
        x = step["y"] + step["down"]
        trace["blocks"].append(step)
    trace["last"] = x[0] if upto is None else x.mean(0)
    trace["pooled"] = normalized(trace["last"], *net["norm"], net["eps"])
    return net["head"][0] @ trace["pooled"] + net["head"][1], trace


def attention_gradients(net, image, target, upto=None, step=1e-5):
    """The attention of the last of ``upto`` blocks, or of all, and the gradient of the logit: ``[blocks, h, T, T]``."""
    _, trace = forward(net, image, upto=upto)
    weights = np.array([[head[4] for head in block["heads"]] for block in trace["blocks"]])
    gradients = np.zeros_like(weights)
    for at in np.ndindex(weights.shape):
        if upto is None or at[0] == upto - 1:
            above, below = (forward(net, image, (*at, by), upto)[0][target] for by in (step, -step))
            gradients[at] = (above - below) / (2 * step)
    return weights, gradients


def shared_out(x, weight, bias, relevance, gamma=0.0):
    """The gamma rule for one row of inputs: c_ij and, 1 + gamma times, those with the sign of the output."""
    found = np.zeros_like(x)
    for j, row in enumerate(weight):
        contributions = x * row
        sign = np.sign(contributions.sum() + bias[j])
        favored = contributions + gamma * np.where(np.sign(contributions) == sign, contributions, 0)
        own = bias[j] + gamma * (bias[j] if np.sign(bias[j]) == sign else 0)
        found += favored / (favored.sum() + own) * relevance[j]
    return found


def through_norm(x, weight, bias, eps, relevance):
    """The denominator is a constant: what is left is a linear layer."""
    size = len(x)
    deviation = math.sqrt(((x - x.mean()) ** 2).mean() + eps)
    matrix = np.diag(weight) @ (np.eye(size) - 1 / size) / deviation
    return shared_out(x, matrix, bias, relevance)


def through_product(a, b, product, relevance, part):
    """Of a ``[T, S]`` times b ``[S, D]``, to each of them its ``part``."""
    of_a, of_b = np.zeros_like(a), np.zeros_like(b)
    for j, i, p in np.ndindex(a.shape[0], a.shape[1], b.shape[1]):
        share = a[j, i] * b[i, p] / product[j, p] * relevance[j, p]
        of_a[j, i] += part[0] * share
        of_b[i, p] += part[1] * share
    return of_a, of_b


def through_head(q, k, v, scores, weights, relevance, attention):
    """To queries, keys and values, from what one head mixed."""
    mixed = weights @ v
    if attention == "constant":
        return np.zeros_like(q), np.zeros_like(k), through_product(weights, v, mixed, relevance, (0, 1))[1]
    of_weights, of_v = through_product(weights, v, mixed, relevance, (0.5, 0.5))
    scaled = scores / math.sqrt(q.shape[1])
    of_scores = scaled * (of_weights - weights * of_weights.sum(1, keepdims=True))
    of_q, of_k = through_product(q, k.T, scores, of_scores, (0.5, 0.5))
    return of_q, of_k.T, of_v


def gelu_slope(x, step=1e-6):
    return (gelu(x + step) - gelu(x - step)) / (2 * step)


def relevance(net, image, target, *, attention="uniform", gate="identity", gamma=0.0, gamma_convolution=0.0):
    """Relevance of the pixels ``[C, H, W]`` for a logit."""
    logits, trace = forward(net, image)
    start = np.zeros_like(logits)
    start[target] = logits[target]
    last = shared_out(trace["pooled"], *net["head"], start, gamma)
    r = np.zeros_like(net["positions"])
    r[0] = through_norm(trace["last"], *net["norm"], net["eps"], last)
    for block, step in reversed(list(zip(net["blocks"], trace["blocks"], strict=True))):
        sum_ = step["y"] + step["down"]
        of_y, of_down = r * step["y"] / sum_, r * step["down"] / sum_
        rows = range(len(r))
        of_gelu = np.stack([shared_out(step["gelu"][t], *block["down"], of_down[t], gamma) for t in rows])
        if gate == "gradient":
            of_gelu = of_gelu / step["gelu"] * step["up"] * gelu_slope(step["up"])
        of_n2 = np.stack([shared_out(step["n2"][t], *block["up"], of_gelu[t], gamma) for t in rows])
        of_y = of_y + np.stack([through_norm(step["y"][t], *block["norm2"], net["eps"], of_n2[t]) for t in rows])

        of_x, of_attended = of_y * step["x"] / step["y"], of_y * step["attended"] / step["y"]
        of_mixed = np.stack([shared_out(step["mixed"][t], *block["out"], of_attended[t], gamma) for t in rows])
        parts = [
            through_head(*head, part, attention)
            for head, part in zip(step["heads"], np.split(of_mixed, net["heads"], 1), strict=True)
        ]
        of_qkv = np.hstack([np.hstack(part) for part in zip(*parts, strict=True)])
        of_n1 = np.stack([shared_out(step["n1"][t], *block["qkv"], of_qkv[t], gamma) for t in rows])
        r = of_x + np.stack([through_norm(step["x"][t], *block["norm1"], net["eps"], of_n1[t]) for t in rows])
    return to_pixels(net, image, trace, r, gamma_convolution)


def to_pixels(net, image, trace, r, gamma):
    """From the tokens of the patches, which share with their positions, to the pixels."""
    kernel, bias = net["patches"]
    size, found = kernel.shape[-1], np.zeros_like(image)
    columns = image.shape[2] // size
    for number, patch in enumerate(cut(image, size)):
        own = trace["patches"][number] / (trace["patches"][number] + net["positions"][number + 1]) * r[number + 1]
        back = shared_out(patch, kernel.reshape(len(kernel), -1), bias, own, gamma).reshape(len(image), size, size)
        top, left = number // columns * size, number % columns * size
        found[:, top : top + size, left : left + size] = back
    return found


def gradient_rollout(net, image, target):
    """R = R + A' R, A' the mean over the heads of the positive part of A times its gradient (Chefer et al. 2021)."""
    weights, gradients = attention_gradients(net, image, target)
    rollout = np.eye(weights.shape[-1])
    for attention, gradient in zip(weights, gradients, strict=True):
        rollout = rollout + np.maximum(attention * gradient, 0).mean(0) @ rollout
    return rollout[0, 1:]


def attention_x_gradient(net, image, target):
    """Of the last block, the mean over the heads, summed over who attends."""
    weights, gradients = attention_gradients(net, image, target)
    return (weights[-1] * gradients[-1]).mean(0).sum(0)[1:]


def legrad(net, image, target):
    """Layer by layer, the positive gradient of the logit of its mean token, averaged over heads and who attends."""
    found = 0
    for upto in range(1, len(net["blocks"]) + 1):
        _, gradients = attention_gradients(net, image, target, upto)
        found = found + np.maximum(gradients[upto - 1], 0).mean((0, 1))[1:]
    return found
