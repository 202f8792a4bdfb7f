"""Decide for a network and an explainer whether the map is right, refused with a name, or neither.

A map is right if it is that of the same function written plainly, follows from the definition where that is short
(saliency, Integrated Gradients, DeepLIFT's sum, LRP-0, Grad-CAM, occlusion), and does not depend on the batch, the
thread or the repetition.
"""

import functools
import threading
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
from refusals import is_refusal
from torch import nn

from xaibench.explainers import EXPLAINERS, build, explain
from xaibench.network.outputs import find_logits

INFOS = {name: EXPLAINERS.resolve(name).info for name in EXPLAINERS}
#: Explainers that call the network.
METHODS = [name for name in EXPLAINERS if not INFOS[name].control and name != "global_mean"]

#: Explainers that share no implementation, which stand for the others.
MANY = (
    *("integrated_gradients", "saliency", "guided_backprop", "guided_gradcam", "deconvolution", "deeplift", "lrp"),
    *("deep_taylor", "lrp_epsilon", "lrp_gamma", "lrp_alpha_beta", "crp", "pattern_net", "fullgrad", "ig2", "agop"),
    *("cam", "gradcam", "scorecam", "shapleycam", "attention_rollout", "legrad", "attnlrp", "rise", "occlusion"),
)
#: Parameters with which an explainer takes few passes.
QUICK = {
    "integrated_gradients": {"n_steps": 4},
    "gradient_shap": {"n_samples": 3},
    "smoothgrad": {"n_samples": 3},
    "smoothgrad_squared": {"n_samples": 3},
    "vargrad": {"n_samples": 3},
    "expected_gradients": {"n_samples": 3},
    "random_baseline_ig": {"n_baselines": 2, "n_steps": 2},
    "guided_ig": {"n_steps": 3},
    "blur_ig": {"n_steps": 3},
    "ig2": {"n_steps": 3},
    "xrai": {"n_steps": 2},
    "gradient_pattern": {"n_samples": 3},
    "pattern_local": {"n_samples": 20},
    "lime": {"n_samples": 20, "alpha": 1e-4},
    "kernel_shap": {"n_samples": 40},
    "shapley_sampling": {"n_samples": 1},
    "rise": {"n_masks": 10, "grid_size": 4},
    "sobol": {"n_designs": 2, "grid_size": 3},
    "hsic": {"n_samples": 20, "grid_size": 3},
}
#: Features are squares, four along each side of the image.
BY_CELLS = ("pfi", "lime", "kernel_shap", "shapley_sampling")
#: Maps of a group of images, which have no map alone.
OF_GROUPS = ("pfi",)
#: Largest difference between maps in float64, in units of the largest value.
TOLERANCE = 1e-4


def parameters(name, side):
    own = dict(QUICK.get(name, {}))
    if name in BY_CELLS:
        own["cell_size"] = side // 4
    if name == "occlusion":
        own |= {"window": side // 4, "stride": side // 4}
    return own


def images_of(entry, count=2, seed=1):
    return torch.rand(count, *entry.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(
        entry.dtype
    )


def quiet(call):
    """Call without warnings."""

    @functools.wraps(call)
    def silent(*arguments, **keywords):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(*arguments, **keywords)

    return silent


class WrongError(AssertionError):
    """Neither right nor refused."""


def maps_of(name, entry, network, images, targets, **settings):
    settings = dict(entry.settings) | parameters(name, entry.shape[-1]) | settings
    if hasattr(EXPLAINERS.resolve(name), "fit"):
        training = images_of(entry, 8, seed=2), torch.arange(8) % max(entry.targets[1] + 1, 2)
        own = {key: settings.pop(key) for key in parameters(name, entry.shape[-1])}
        explainer = build(name, **own).fit(network, [training])
    else:
        explainer = name
    return explain(explainer, network, images, list(targets), device="cpu", progress=False, **settings)


def largest_difference(found, expected):
    """Return the largest difference in units of the largest expected value."""
    if found.shape != expected.shape:
        return float("inf")
    found, expected = found.double(), expected.double()
    scale = expected.abs().max().item()
    difference = (found - expected).abs().max().item()
    return difference / scale if scale > 1e-12 else difference


def require_equal(found, expected, what, tolerance=TOLERANCE):
    difference = largest_difference(found, expected)
    if not difference <= tolerance:
        raise WrongError(f"{what}: {difference:.2g} of the largest value")


def tolerance_of(entry):
    settings = dict(entry.settings)
    return TOLERANCE if settings.get("dtype", entry.dtype) == torch.float64 else 1e-3


def elsewhere(call):
    """Call in another thread."""
    results = []

    def work():
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


class Trial:
    """A network of the zoo, with what is computed once for all explainers."""

    def __init__(self, entry, build=None):
        self.entry = entry
        self.network = (build or entry.build)()
        self.images = images_of(entry)
        self.targets = torch.tensor(entry.targets)
        self.plain = [] if build else [plain_trial(entry, plain) for plain in entry.plain]
        self.known = {}

    def maps(self, name):
        """Return the maps, or the refusal; computed once."""
        if name not in self.known:
            try:
                self.known[name] = maps_of(name, self.entry, self.network, self.images, self.entry.targets)
            except Exception as error:
                if not is_refusal(error):
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    place = f"{Path(where.filename).name}:{where.lineno}"
                    raise WrongError(f"raw {type(error).__name__} in {place}: {str(error)[:150]}") from error
                self.known[name] = error
        return self.known[name]

    @quiet
    def verdict(self, name):
        """Return ``"right"`` or ``"refused"``; raise a WrongError otherwise."""
        before = portrait(self.network)
        try:
            found = self.maps(name)
        finally:
            changed = [aspect for aspect, value in portrait(self.network).items() if value != before[aspect]]
        if changed:
            raise WrongError(f"the network comes back with other {', '.join(changed)}")
        if isinstance(found, Exception):
            return "refused"
        self.require_same_elsewhere(name, found)
        if self.plain:
            self.require_plain(name, found)
        elif name in DEFINITIONS and self.entry.defined:
            DEFINITIONS[name](self)
        return "right"

    def require_same_elsewhere(self, name, found):
        order = [0, 1] if name in OF_GROUPS else [1, 0]
        targets = self.targets[order].tolist()
        call = functools.partial(maps_of, name, self.entry, self.network, self.images[order], targets)
        if "batch_size" in EXPLAINERS.resolve(name).__dataclass_fields__:
            call = functools.partial(call, batch_size=1)
        try:
            second = elsewhere(call)
        except Exception as error:
            raise WrongError(f"the second time {type(error).__name__}: {str(error)[:150]}") from error
        require_equal(second[order], found, "another map alone, in another thread", tolerance_of(self.entry))

    def require_plain(self, name, found):
        expected = [maps for trial in self.plain if isinstance(maps := trial.maps(name), torch.Tensor)]
        if not expected:
            return
        difference = min(largest_difference(found, maps) for maps in expected)
        if difference > tolerance_of(self.entry):
            raise WrongError(f"not the map of the plain form: {difference:.2g} of the largest value")

    def explained(self, name, **settings):
        """Return the maps of the logit."""
        return maps_of(name, self.entry, self.network, self.images, self.entry.targets, **settings)

    def logits(self, images, targets=None):
        """Return the explained logits ``[n]``, by calling the network."""
        targets = self.targets if targets is None else targets
        result = find_logits(self.network(images.clone()))
        return result.gather(1, targets[:, None])[:, 0]

    def gradients(self, images, targets=None):
        x = images.clone().requires_grad_()
        return torch.autograd.grad(self.logits(x, targets).sum(), x)[0]


@functools.lru_cache(maxsize=8)
def plain_trial(entry, plain):
    return Trial(entry, plain)


# --- definitions ------------------------------------------------------------------------------------------------------


def saliency(trial):
    expected = trial.gradients(trial.images).sum(1)
    require_equal(trial.explained("saliency", output="logit", channels="sum"), expected, "not the gradient")


def input_x_gradient(trial):
    expected = (trial.images * trial.gradients(trial.images)).sum(1)
    require_equal(trial.explained("input_x_gradient", output="logit"), expected, "not image times gradient")


def integrated_gradients(trial):
    nodes, weights = np.polynomial.legendre.leggauss(4)
    mean = sum(w / 2 * trial.gradients(trial.images * (1 + t) / 2) for t, w in zip(nodes, weights, strict=True))
    found = trial.explained("integrated_gradients", output="logit")
    require_equal(found, (trial.images * mean).sum(1), "not the mean gradient on the line")


def deeplift(trial):
    with torch.no_grad():
        expected = trial.logits(trial.images) - trial.logits(torch.zeros_like(trial.images))
    found = trial.explained("deeplift", output="logit")
    if not torch.allclose(found.sum((1, 2)), expected, rtol=1e-4, atol=1e-6):
        raise WrongError(f"sums to {found.sum((1, 2)).tolist()}, the logit changes by {expected.tolist()}")


def lrp_epsilon(trial):
    if trial.entry.relu:
        expected = (trial.images * trial.gradients(trial.images)).sum(1)
        require_equal(trial.explained("lrp_epsilon", epsilon=0.0), expected, "LRP-0 is not image times gradient")


def occlusion(trial):
    side = trial.images.shape[-1]
    window = 1 if side <= 16 else side // 4
    found = trial.explained("occlusion", output="logit", window=window, stride=window)
    expected = torch.zeros_like(found)
    with torch.no_grad():
        whole = trial.logits(trial.images)
        for row in range(0, side, window):
            for column in range(0, side, window):
                covered = trial.images.clone()
                covered[:, :, row : row + window, column : column + window] = 0
                difference = whole - trial.logits(covered)
                expected[:, row : row + window, column : column + window] = difference[:, None, None]
    require_equal(found, expected, "not the loop")


#: Checks by explainer, for networks without a plain form.
DEFINITIONS = {
    "saliency": saliency,
    "input_x_gradient": input_x_gradient,
    "integrated_gradients": integrated_gradients,
    "deeplift": deeplift,
    "lrp_epsilon": lrp_epsilon,
    "occlusion": occlusion,
}


def portrait(network):
    """Return all that must be the same afterwards; objects by identity, tensors by dtype and sum."""
    modules, parameters = dict(network.named_modules()), dict(network.named_parameters())
    state = {name: value for name, value in network.state_dict().items() if isinstance(value, torch.Tensor)}
    hooks = [{key: dict(value) for key, value in vars(module).items() if "hook" in key and isinstance(value, dict)}
             for module in modules.values()]  # fmt: skip
    return {
        "modules": [(name, id(module), type(module)) for name, module in modules.items()],
        "attributes": [{key: id(value) for key, value in vars(module).items()} for module in modules.values()],
        "modes": [module.training for module in modules.values()],
        "hooks": hooks,
        "parameters": [(name, id(parameter), parameter.dtype) for name, parameter in parameters.items()],
        "requires_grad": [parameter.requires_grad for parameter in parameters.values()],
        "gradient_ids": [id(parameter.grad) for parameter in parameters.values()],
        "gradients": [parameter.grad is None or checksum(parameter.grad) for parameter in parameters.values()],
        "state": [(name, value.dtype, checksum(value)) for name, value in state.items()],
    }


def checksum(tensor):
    if isinstance(tensor, nn.parameter.UninitializedTensorMixin) or tensor.is_meta:
        return None
    return str(tensor.to(torch.complex128).sum().item())
