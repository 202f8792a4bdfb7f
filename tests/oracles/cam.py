"""The CAM family written again, slowly, one sample and one position at a time, straight from the papers.

``features`` are functions of one image: ``features(image) -> A [C, h, w]``, ``head(A) -> [K]`` the rest of the network.
"""

import math

import torch


def feature_gradient(features, head, image, target):
    """A and the gradient of the target's output by it."""
    maps = features(image).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(head(maps)[target], maps)
    return maps.detach(), gradient


def positions(maps):
    return [(i, j) for i in range(maps.shape[-2]) for j in range(maps.shape[-1])]


def weighted_sum(weights, maps):
    total = torch.zeros_like(maps[0])
    for weight, feature in zip(weights, maps, strict=True):
        for i, j in positions(feature):
            total[i, j] += weight * feature[i, j]
    return total


def cam(features, weight, image, target):
    """Zhou et al. 2016, equation 2: M_c(x, y) = sum_k w_k^c f_k(x, y)."""
    return weighted_sum([w.item() for w in weight[target]], features(image))


def gradcam(features, head, image, target):
    """Selvaraju et al. 2017, equations 1 and 2."""
    maps, gradient = feature_gradient(features, head, image, target)
    z = len(positions(maps))
    weights = [sum(g[i, j].item() for i, j in positions(g)) / z for g in gradient]
    return weighted_sum(weights, maps).clamp(min=0)


def gradcam_plus_plus(features, head, image, target):
    """Chattopadhay et al. 2018, equations 9 and 19, without the factor exp(S) and without an epsilon."""
    maps, gradient = feature_gradient(features, head, image, target)
    weights = []
    for feature, g in zip(maps, gradient, strict=True):
        area, weight = feature.sum().item(), 0.0
        for i, j in positions(g):
            d = g[i, j].item()
            if d > 0:
                weight += d * d**2 / (2 * d**2 + area * d**3)
        weights.append(weight)
    return weighted_sum(weights, maps).clamp(min=0)


def layercam(features, head, image, target):
    """Jiang et al. 2021, equations 6 to 8."""
    maps, gradient = feature_gradient(features, head, image, target)
    result = torch.zeros_like(maps[0])
    for i, j in positions(maps):
        result[i, j] = max(0.0, sum(max(0.0, g[i, j].item()) * a[i, j].item() for g, a in zip(gradient, maps)))  # noqa: B905
    return result


def enlarge_aligned(feature, size):
    """Bilinear with aligned corners, value by value."""
    result = torch.zeros(size, dtype=feature.dtype)
    steps = [(old - 1) / (new - 1) for old, new in zip(feature.shape, size, strict=True)]
    for i, j in positions(result):
        y, x = i * steps[0], j * steps[1]
        top, left = min(int(y), feature.shape[0] - 1), min(int(x), feature.shape[1] - 1)
        below, right = min(top + 1, feature.shape[0] - 1), min(left + 1, feature.shape[1] - 1)
        v, h = y - top, x - left
        result[i, j] = (1 - v) * ((1 - h) * feature[top, left] + h * feature[top, right]) + v * (
            (1 - h) * feature[below, left] + h * feature[below, right]
        )
    return result


def scorecam(features, head, image, target):
    """Wang et al. 2020, algorithm 1, with the blank image subtracted as it says."""
    maps = features(image)
    blank = head(features(torch.zeros_like(image)))[target].item()
    scores = []
    for feature in maps:
        mask = enlarge_aligned(feature, image.shape[1:])
        spread = (mask.max() - mask.min()).item()
        mask = (mask - mask.min()) / spread if spread else torch.zeros_like(mask)
        scores.append(head(features(image * mask))[target].item() - blank)
    exponentials = [math.exp(score) for score in scores]
    return weighted_sum([e / sum(exponentials) for e in exponentials], maps).clamp(min=0)


def eigencam(features, image, *, centered):
    """Muhammad and Yeasin 2020, section III: O V_1, by power iteration on OᵀO; largest magnitude positive."""
    maps = features(image)
    matrix = torch.stack([maps[:, i, j] for i, j in positions(maps)])
    if centered:
        matrix = matrix - matrix.mean(0)
    vector = torch.linspace(1, 2, matrix.shape[1], dtype=matrix.dtype)
    for _ in range(5000):
        vector = matrix.T @ (matrix @ vector)
        vector = vector / vector.norm()
    result = (matrix @ vector).reshape(maps.shape[1:])
    return result if result.max() >= -result.min() else -result


def hirescam(features, head, image, target):
    """Draelos and Carin 2020: the sum over the maps of map times gradient, element by element."""
    maps, gradient = feature_gradient(features, head, image, target)
    result = torch.zeros_like(maps[0])
    for i, j in positions(maps):
        result[i, j] = sum(g[i, j].item() * a[i, j].item() for g, a in zip(gradient, maps, strict=True))
    return result


def xgradcam(features, head, image, target):
    """Fu et al. 2020: gradients averaged with the activations as weights."""
    maps, gradient = feature_gradient(features, head, image, target)
    weights = []
    for feature, g in zip(maps, gradient, strict=True):
        area = sum(feature[i, j].item() for i, j in positions(feature))
        weights.append(sum(feature[i, j].item() / area * g[i, j].item() for i, j in positions(g)) if area else 0.0)
    return weighted_sum(weights, maps).clamp(min=0)


def ablationcam(features, head, image, target):
    """Desai and Ramaswamy 2020, without the division by the output."""
    maps = features(image)
    whole, weights = head(maps)[target].item(), []
    for k in range(len(maps)):
        without = maps.clone()
        without[k] = 0
        weights.append(whole - head(without)[target].item())
    return weighted_sum(weights, maps).clamp(min=0)


def finercam(features, head, image, target, *, gamma, n_references):
    """Zhang et al. 2025: the mean over references d of the Grad-CAM weights of y_c - gamma y_d."""
    outputs = head(features(image)).tolist()
    others = sorted((abs(value - outputs[target]), k) for k, value in enumerate(outputs) if k != target)
    weights = []
    for _, reference in others[:n_references]:
        maps, own = feature_gradient(features, head, image, target)
        _, other = feature_gradient(features, head, image, reference)
        weights.append((own - gamma * other).mean((1, 2)))
    return weighted_sum(torch.stack(weights).mean(0).tolist(), maps).clamp(min=0)


def rest(outputs, target):
    """Cai 2025: the logit plus the logarithm of its softmax probability."""
    return outputs[target] + outputs[target] - torch.logsumexp(outputs, 0)


def shapleycam(features, head, image, target, *, utility):
    """Cai 2025: weights from the gradient and the whole Hessian of the utility, one row of it at a time."""
    maps = features(image).detach()
    size = maps.numel()

    def value(flat):
        return utility(head(flat.reshape(maps.shape)), target)

    flat = maps.flatten().requires_grad_()
    (gradient,) = torch.autograd.grad(value(flat), flat)
    hessian = torch.autograd.functional.hessian(value, flat.detach())
    shapley = [
        gradient[i].item() - 0.5 * sum(hessian[i, j].item() * flat[j].item() for j in range(size)) for i in range(size)
    ]
    per_map = size // len(maps)
    weights = [sum(shapley[k * per_map : (k + 1) * per_map]) / per_map for k in range(len(maps))]
    return weighted_sum(weights, maps).clamp(min=0)


def kpcacam(features, image, kernel):
    """Karmani et al. 2024: kernel PCA of the centered features, by power iteration; largest magnitude positive."""
    maps = features(image)
    rows = [maps[:, i, j] for i, j in positions(maps)]
    mean = sum(rows) / len(rows)
    n = len(rows)
    matrix = torch.tensor([[kernel(x - mean, y - mean).item() for y in rows] for x in rows], dtype=maps.dtype)
    center = torch.eye(n, dtype=maps.dtype) - torch.full((n, n), 1 / n, dtype=maps.dtype)
    matrix = center @ matrix @ center
    shift = matrix.abs().sum(1).max()  # makes all eigenvalues positive, so that the iteration finds the largest
    vector = torch.linspace(1, 2, n, dtype=maps.dtype)
    for _ in range(20000):
        vector = matrix @ vector + shift * vector
        vector = vector / vector.norm()
    result = (vector * (vector @ matrix @ vector).sqrt()).reshape(maps.shape[1:])
    return result if result.max() >= -result.min() else -result


def refinecam(maps, size):
    """Domeniconi et al. 2026: the product of maps ``[h, w]`` of one image, scaled to [0, 1] before and after."""

    def scaled(feature):
        low, high = feature.min().item(), feature.max().item()
        return (feature - low) / (high - low) if high > low else torch.zeros_like(feature)

    product = torch.ones(size, dtype=maps[0].dtype)
    for each in maps:
        large = scaled(torch.nn.functional.interpolate(each.clamp(min=0)[None, None], size, mode="bilinear")[0, 0])
        for i, j in positions(product):
            product[i, j] *= large[i, j]
    return scaled(product)
