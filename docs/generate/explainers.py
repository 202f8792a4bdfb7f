"""Write the page that lists every registered explainer, from the registry and the docstrings.

python docs/generate/explainers.py      # writes docs/explainers.md; its pictures come from benchmarks/gallery.py
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from prose import plain, section

from xaibench.explainers import EXPLAINERS
from xaibench.explainers.base import Attribution
from xaibench.explainers.cam.single_layer import FeatureMaps
from xaibench.explainers.perturbation.feature_attribution import FeatureAttribution
from xaibench.explainers.propagation.lrp import LayerwiseRelevance

PAGE = Path(__file__).parents[1] / "explainers.md"

#: Families in the order of the page, with a description of each.
FAMILIES = {
    "Gradients": "The change of the output with each pixel, at the image or along a path.",
    "Gradients with rules for ReLUs": (
        "They treat every ReLU and ReLU6, also if it is called as a function. Another activation raises an error."
    ),
    "Differences from a baseline": (
        "Image and baseline are evaluated together; each nonlinear operation propagates a quotient of differences."
    ),
    "Relevance": (
        "The logit of the target is distributed over the inputs of the last layer, and so on down to the pixels. "
        "Except for `lrp`, which is Captum's, they share their parameters and differ in the defaults. LRP is "
        "patented: see [`attnlrp`](#attnlrp)."
    ),
    "Patterns": (
        "A pattern describes the signal of a neuron in its input, which differs from its weights. They are fitted "
        "first: `fitted = xb.explainers.PatternNet().fit(model, loader)`, then `xb.explain(fitted, model, images, "
        "targets)`."
    ),
    "Feature maps": (
        "A weighted sum of the feature maps A_k of one layer, enlarged to the image; g_k is the gradient of the "
        "explained output with respect to A_k. The maps are not scaled to [0, 1]."
    ),
    "Attention": (
        "For transformers with any implementation of attention: torchvision, timm, `nn.MultiheadAttention`. All "
        "except `attention_rollout` depend on the class. Three combine the attention and its gradient to one value "
        "per patch. The other three are Input × Gradient on pixels, with modified backward rules for some operations."
    ),
    "Perturbations": (
        "They only evaluate the network, so they explain any network. `n_samples=None` means 2 F + 2048 for F "
        "features, at most 2²² / F and at least 50; the XAI-TRIS suites set the published 50 (LIME) and 25 (Kernel "
        "SHAP)."
    ),
    "Controls": "Maps that do not use the network. A useful explainer scores above all of them. `prior` is "
    "fitted to the masks of the training split, so it is not among the default controls of `xb.evaluate`; give it in "
    "`controls=`. Where the ground truth is at the same place in every image, it is perfect: scores on such a data "
    "set cannot distinguish an explainer from a fixed map.",
}

#: Classes whose parameters are described once, with the heading of the page (empty: parameters of most explainers).
SHARED: list[tuple[type, str]] = [
    (LayerwiseRelevance, "Relevance"),
    (FeatureMaps, "Feature maps"),
    (FeatureAttribution, "Perturbations"),
    (Attribution, ""),
]

#: Passes per image of explainers for which they depend on the network or the image.
PASSES = {
    "pfi": "1 + features",
    "shapley_sampling": "`n_samples` × features",
    "occlusion": "1 + windows",
    "sobol": "`n_designs` × (1 + cells)",
    "random_baseline_ig": "2 `n_baselines` × `n_steps`",
    "ig2": "3 `n_steps` × `n_references`",
    "gradient_pattern": "1 + 2 `n_samples`",
    "deep_shap": "4 × baselines",
    "scorecam": "1 + feature maps",
    "ablationcam": "1 + feature maps",
    "legrad": "1 + 2 × layers",
}

HEAD = """# Explainers

    maps = xb.explain(name, model, images, targets, **parameters)

The images are `[N, C, H, W]`, the maps `[N, H, W]` and signed; a larger magnitude means more important. The state of
the model is restored afterwards. Instead of a name, `explain` accepts an instance or class from this page, a callable
`(model, images, targets) -> maps`, `"package.module:name"`, and any Captum `Attribution` class or object.

![The maps of all {count} explainers and controls on one XAI-TRIS image](images/explainers-light.png#only-light)
![The maps of all {count} explainers and controls on one XAI-TRIS image](images/explainers-dark.png#only-dark)

One test sample of `xai-tris/lin-corr-8x8` (signal `alpha=0.3`) and the maps of its class, with default parameters. Red
is positive, blue negative, and zero has the color of the page. Each map is scaled by its own largest magnitude; the
outline is the true pattern. The networks are the CNN of the paper, one with global average pooling for the CAM family
(marked \\*), and a vision transformer for methods for transformers (\\*\\*). The mean is subtracted from the RISE map.

![Maps of the explainers on a photograph of a cat](images/explainers-photo-light.jpg#only-light)
![Maps of the explainers on a photograph of a cat](images/explainers-photo-dark.jpg#only-dark)

The same on a photograph (Chelsea, by Stéfan van der Walt, CC0) for the class *cat* of EfficientNet-Lite0, with its
ImageNet classes merged to cat and dog. Full color is the 99.5th percentile of the magnitude. Features are superpixels
for Shapley sampling, Kernel SHAP and LIME. Methods that need other images (PFI, the patterns, Expected Gradients) or
another network (LRP of Captum, methods for transformers) are not shown. Both pictures are made by
`python benchmarks/gallery.py`.

| name | | explains | passes |
|---|---|---|---|
{table}

*Explains* is the explained output by default, which `output=` changes; "only" means that the
explainer begins at the logit, also under `output="sigmoid"`, and at the value of a function (`docs/own-network.md`).
[A separate page](explainers-networks.md) lists which explainer supports which network, the time it takes, and the error
for unsupported networks.

*Passes* are the cost of explaining one image: rows that go through the network, forward or backward. A gradient with
respect to the image takes two passes, one in each direction, since a backward row uses the same weights and as many
multiplications (Griewank, Walther: Evaluating Derivatives, SIAM 2008, bound the total by four). A row through a part of
the network counts in full. Rows that a small network [updates incrementally](#incremental-passes) count like full rows.
Work that is done once, regardless of the number of images, is not counted. Tests count the rows of every explainer.
`budget=1000` sets the largest count that takes at most 1,000 passes per image: in `xb.explain("rise", ...,
budget=1000)`, as a parameter of an explainer in a suite, or to look up the count,
`xb.explainers.build("rise").within(1000, images)`. An explainer without such a parameter runs unchanged if the budget
suffices; otherwise an error states the required budget.

## Shared parameters

{shared}
- `output`, `device`, `dtype`, `precision`: parameters of `explain`. Float32 has full precision, also on a GPU;
  `precision="tf32"` rounds the factors of convolutions to ten bits there, `precision="bfloat16"` runs the network in
  bfloat16. The effect on ResNet-18 (random weights, 224×224, a CPU with bfloat16 instructions; `python
  benchmarks/explainers.py --bfloat16`, with `--device cuda` on a GPU): maps of regions hardly change (correlation with
  float32: CAM family, RISE, Kernel SHAP 0.9999; RISE in 0.34 of the time), sums over paths a little (Integrated
  Gradients 0.988, Input × Gradient and LRP epsilon 0.977), single gradients more (Saliency 0.916).

## Incremental passes

Shapley sampling, PFI and Occlusion evaluate the network on images that differ in a few values. On a CPU, small
sequential networks of convolution, ReLU, max- and average-pooling and linear layers, such as those of XAI-TRIS, need no
full pass for that. The outputs of each layer are updated: the change times the weights is added, and ReLU and
max-pooling are evaluated only where something changed, in compiled loops and double precision. For each permutation or
image, the last row is compared with a full pass and must agree to 10⁻⁹ of the largest output. Otherwise, and for other
networks, all passes are full passes. The maps agree up to rounding, 10⁻¹⁴.

Milliseconds per step (one thread, float64; `python benchmarks/explainers.py --steps`), compared with the fastest full
pass of a row and with a step of full passes:

| network | explainer | full pass | step with full passes | incremental step | share of the full pass |
|---|---|---|---|---|---|
| CNN 64×64 | Shapley sampling | 0.330 | 0.378 | 0.0098 | 3.0 % |
| CNN 64×64 | PFI | 0.330 | 0.454 | 0.0078 | 2.4 % |
| CNN 64×64 | Occlusion, 5×5 pixels | 0.330 | 0.496 | 0.0262 | 7.9 % |
| MLP 64×64 | Shapley sampling | 0.062 | 0.025 | 0.0058 | 9.4 % |
| MLP 64×64 | PFI | 0.062 | 0.080 | 0.0068 | 11 % |
| MLP 64×64 | Occlusion, 5×5 pixels | 0.062 | 0.126 | 0.0309 | 50 % |
| CNN 8×8 | Shapley sampling | 0.0057 | 0.0072 | 0.0005 | 8.9 % |

A pass of the MLP is fast, and its second layer changes completely, so only the multiplications of the first layer are
saved. At 8×8, full passes of the MLP are faster and are used. PFI and Occlusion on the 8×8 CNN take 0.002 ms per step,
most of it outside the loops.
"""


def explains(name: str) -> str:
    """Return the explained output."""
    part: Any = EXPLAINERS.resolve(name)
    if part.info.control:
        return "the masks" if hasattr(part, "fit") else "the image"
    if part.info.family == "Attention" and not hasattr(part, "explains"):
        return "the attention"
    return (getattr(part, "explains", None) or "probability") + (
        " only" if getattr(part, "explains_only", False) else ""
    )


def row(name: str) -> str:
    part = EXPLAINERS.resolve(name)
    return f"| [`{name}`](#{anchor(name)}) | {part.info.label} | {explains(name)} | {passes(name)} |"


def passes(name: str) -> str:
    """Return the number of passes per image."""
    part: Any = EXPLAINERS.resolve(name)
    if part.info.passes is not None:
        return str(part.info.passes)
    if name in PASSES:
        return PASSES[name]
    if not hasattr(part, "counted"):
        return "not stated"
    return f"{part.each} `{part.counted}`" if part.each > 1 else f"`{part.counted}`"


def anchor(name: str) -> str:
    """Return the anchor of its heading; GitHub and MkDocs number equal anchors differently."""
    return name.replace("+", "-plus")


def parameters(part: type) -> list[str]:
    """Return a line per parameter, and one line that links to the shared parameters."""
    told = {field.name: where for base, where in SHARED if issubclass(part, base) for field in fields(base)}
    lines, others = [], {}
    for field in fields(part):
        default = "" if field.default is dataclasses.MISSING else f"={field.default!r}"
        if field.name in told:
            others.setdefault(told[field.name], []).append(f"`{field.name}{default}`")
        elif field.name != "patterns":
            lines.append(f"- `{field.name}{default}`: {described(part)[field.name]}")
    links = {"": "[most explainers](#shared-parameters)"}
    for where, names in others.items():
        link = links.get(where, f"[all of this family](#{where.lower().replace(' ', '-')})")
        lines.append(f"- As in {link}: {', '.join(names)}")
    return lines


def fields(part: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(part)


def described(part: type) -> dict[str, str]:
    """Return the description of each attribute from the docstrings of the class and its bases."""
    told: dict[str, str] = {}
    for base in reversed(part.__mro__):
        text = section(textwrap.dedent(inspect.cleandoc(base.__doc__ or "")), "Attributes")
        for entry in re.split(r"\n(?=\w)", text.strip()):
            name, _, rest = entry.partition(":")
            if rest:
                told[name] = plain(rest)
    return told


def prose(part: type) -> str:
    """Return the docstring without its sections; formulas and lists are kept."""
    doc = inspect.cleandoc(part.__doc__ or "")
    text = re.split(r"\n\n?(?:Attributes|Raises|Example|Args):\n", doc)[0]
    return "\n\n".join(plain(paragraph) for paragraph in text.split("\n\n"))


def entry(name: str) -> str:
    part = EXPLAINERS.resolve(name)
    source = f"\n\nSource: {part.info.citation}" if part.info.citation else ""
    listed = "\n".join(parameters(part))
    target = f'<a id="{anchor(name)}"></a>\n\n' if anchor(name) != name else ""
    return f"{target}### {name}\n\n**{part.info.label}.** {prose(part)}{source}\n\n{listed}\n"


def rules() -> str:
    """Return the table of the relevance rules, from the docstring of the base class."""
    doc = inspect.cleandoc(LayerwiseRelevance.__doc__ or "")
    body = doc.split("\n==")[2].partition("\n")[2]
    lines = re.sub(r"\n {8,}", " ", body).splitlines()
    cells = [re.split(r"  +", plain_cell(line), maxsplit=1) for line in lines]
    legend = plain(doc.split("\n\n")[1])
    sums = plain(doc.split("\n\n")[3])
    head = "| rule | share of R_j for input i |\n|---|---|\n"
    return f"{legend}\n\n{head}" + "\n".join(f"| {rule} | {share} |" for rule, share in cells) + f"\n\n{sums}\n"


def plain_cell(line: str) -> str:
    return line.replace("``", "`").replace("|", "&#124;")


def shared_of(heading: str) -> str:
    """Return the descriptions of the parameters that a family, or most explainers, share."""
    lines = []
    for base, where in SHARED:
        if where == heading:
            own = {field.name for field in fields(base)} - {field.name for field in fields(Attribution) if heading}
            lines += [f"- `{name}`: {text}" for name, text in described(base).items() if name in own]
    return "\n".join(lines)


def families() -> dict[str, list[str]]:
    """Return the names of each family, families of FAMILIES first."""
    names: dict[str, list[str]] = {heading: [] for heading in FAMILIES}
    for name in EXPLAINERS:
        names.setdefault(EXPLAINERS.resolve(name).info.family, []).append(name)
    return {heading: found for heading, found in names.items() if found}


def family(heading: str, names: list[str]) -> str:
    text = f"\n## {heading}\n"
    if heading in FAMILIES:
        text += f"\n{textwrap.fill(FAMILIES[heading], 120)}\n"
    if heading == "Relevance":
        text += f"\n{rules()}"
    if shared := shared_of(heading):
        text += f"\nShared parameters:\n\n{shared}\n"
    return text + "\n" + "\n".join(entry(name) for name in names)


def page() -> str:
    table = "\n".join(row(name) for names in families().values() for name in names)
    head = HEAD.format(count=len(EXPLAINERS), table=table, shared=shared_of(""))
    return head + "".join(family(heading, names) for heading, names in families().items())


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
