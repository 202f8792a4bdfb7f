"""The page that lists every registered explainer, made of the registry and of the docstrings.

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
from xaibench.explainers.backward.relevance import LayerwiseRelevance
from xaibench.explainers.feature_maps.one_layer import FeatureMaps
from xaibench.explainers.forward.pixel_perturbation import FeatureAttribution
from xaibench.explainers.shared.interface import Attribution

PAGE = Path(__file__).parents[1] / "explainers.md"

#: Families in the order of the page, and what is common to those of each.
FAMILIES = {
    "Gradients": "How the output changes with each pixel, as it is or along a path.",
    "Gradients with rules for ReLUs": (
        "They see every ReLU and ReLU6, also one that is called as a function; another activation is an error."
    ),
    "Differences from a baseline": (
        "Image and baseline run together; each nonlinear operation passes back a quotient of differences."
    ),
    "Relevance": (
        "The logit of the target is shared among the inputs of the last layer, and so on down to the pixels. Except "
        "for `lrp`, which is Captum's, they have one set of parameters and differ in their defaults. LRP is patented: "
        "see [`attnlrp`](#attnlrp)."
    ),
    "Patterns": (
        "What a neuron's signal looks like in its input, which is not its weights. Fitted first: `fitted = "
        "xb.explainers.PatternNet().fit(model, loader)`, then `xb.explain(fitted, model, images, targets)`."
    ),
    "Feature maps": (
        "A weighted sum of the feature maps A_k of one layer, enlarged to the image; g_k is the gradient of the "
        "explained output by A_k. Their maps are not scaled to [0, 1]."
    ),
    "Attention": (
        "For transformers, whoever computes their attention: torchvision, timm, `nn.MultiheadAttention`. All but "
        "`attention_rollout` know the class. Three make a map of the attention and its gradient, a value for each "
        "patch; the other three are Input × Gradient, on pixels, with a gradient that treats some operations by rules "
        "of their own."
    ),
    "Perturbations": (
        "They only run the network forwards, and so explain any. `n_samples=None` takes 2 F + 2048 for F features, "
        "at most 2²² / F and at least 50; the XAI-TRIS suites state the published 50 (LIME) and 25 (Kernel SHAP)."
    ),
    "Controls": "Maps that know no network. An explainer worth its cost scores above all of them.",
}

#: Whose parameters are told once, and under which heading of the page (none: those that most have).
SHARED: list[tuple[type, str]] = [
    (LayerwiseRelevance, "Relevance"),
    (FeatureMaps, "Feature maps"),
    (FeatureAttribution, "Perturbations"),
    (Attribution, ""),
]

#: What those take for an image of which the network or the image decide.
PASSES = {
    "pfi": "1 + features",
    "shapley_sampling": "`n_samples` × features",
    "occlusion": "1 + windows",
    "sobol": "`n_designs` × (1 + cells)",
    "random_baseline_ig": "2 `n_baselines` × `n_steps`",
    "ig2": "3 `n_steps` × `n_references`",
    "pattern_local": "1 + 2 `n_samples`",
    "deep_shap": "4 × baselines",
    "scorecam": "1 + feature maps",
    "ablationcam": "1 + feature maps",
    "legrad": "1 + 2 × layers",
}

HEAD = """# Explainers

    maps = xb.explain(name, model, images, targets, **parameters)

Images `[N, C, H, W]` in, signed maps `[N, H, W]` out; bigger magnitude is more important. The model comes back as it
was given. Beside a name, `explain` takes an instance or class of these, a callable `(model, images, targets) -> maps`,
`"package.module:name"`, and any Captum `Attribution` class or object.

![The maps of all {count} explainers and controls on one XAI-TRIS image](images/explainers-light.png#only-light)
![The maps of all {count} explainers and controls on one XAI-TRIS image](images/explainers-dark.png#only-dark)

One test sample of `xai-tris/lin-corr-8x8` (signal `alpha=0.3`) and the maps of its class, parameters as by default. Red
is positive, blue negative, zero the colour of the page; each map is scaled by its own largest magnitude, and the
outline is the true pattern. The networks are the paper's CNN; one with global average pooling for the CAM family
(marked \\*); a vision transformer for those of transformers (\\*\\*). RISE is shown about its mean.

![Maps of the explainers on a photograph of a cat](images/explainers-photo-light.jpg#only-light)
![Maps of the explainers on a photograph of a cat](images/explainers-photo-dark.jpg#only-dark)

The same on a photograph (Chelsea, by Stéfan van der Walt, CC0) for the class *cat* of EfficientNet-Lite0, its ImageNet
classes folded to cat and dog. Here full colour is the 99.5th percentile of the magnitude. Features are superpixels for
Shapley sampling, Kernel SHAP and LIME. Left out is what needs other images than this one (PFI, the patterns, Expected
Gradients), or another network (LRP of Captum, those of transformers). Both pictures are made by
`python benchmarks/gallery.py`.

| name | | explains | passes |
|---|---|---|---|
{table}

*Explains* is what is explained unless `output=` says otherwise; where it says "only", nothing else can be. Which
explainer explains which network, how long that takes, and what the error says where it does not, is on a
[page of its own](explainers-networks.md).

*Passes* are what it costs to explain an image: rows that go through the network, forward or back. A gradient by the
image takes two, one each way: on its way back a row meets the same weights, and takes as many multiplications
(Griewank, Walther: Evaluating Derivatives, SIAM 2008, bound the whole of it by four). A row through a part of the
network counts whole; what a small network [carries on](#one-pixel-at-a-time) counts as the rows that it stands for; and
what is looked up once, however many images there are, is not counted. Tests count the rows of every explainer.
`budget=1000` gives any explainer the largest count that 1,000 passes for each image afford: as `xb.explain("rise", ...,
budget=1000)`, as a parameter of an explainer in a suite, and for a look at the count
`xb.explainers.build("rise").within(1000, images)`. What has nothing to choose is as it is where the budget suffices;
elsewhere the error says what would.

## Parameters that most have

{shared}
- `output`, `device`, `dtype`, `precision`: of `explain` itself. Float32 is float32, on a GPU too; `precision="tf32"`
  rounds what convolutions multiply to ten bits there, `precision="bfloat16"` runs the network in bfloat16. What that
  costs on ResNet-18 (random weights, 224×224, a CPU with bfloat16 instructions; `python benchmarks/explainers.py
  --bfloat16`, with `--device cuda` on a GPU): maps of regions stay the same (correlation with float32: CAM family,
  RISE, Kernel SHAP 0.9999; RISE in 0.34 of the time), sums over paths suffer a little (Integrated Gradients 0.988,
  Input × Gradient and LRP epsilon 0.977), single gradients more (Saliency 0.916).

## One pixel at a time

Shapley sampling, PFI and Occlusion ask what the network says when few values of an image change. On a CPU, in a small
network of convolution, ReLU, max- and average-pooling and linear layers one after another, as XAI-TRIS' are, no whole
pass is made for that: each layer's outputs are carried along, the change times the weights is added to them, and ReLU
and max-pooling are done again only where something changed, in compiled loops and double precision. In each
permutation or image the last row is held against a plain pass, and must agree to 10⁻⁹ of the largest output; else, and
for other networks, all passes are plain. The maps are the same but for rounding, 10⁻¹⁴.

Milliseconds a step (one thread, float64; `python benchmarks/explainers.py --steps`), beside the cheapest bare pass of a
row and the step made of plain passes:

| network | explainer | bare pass | step of plain passes | step | of the bare pass |
|---|---|---|---|---|---|
| CNN 64×64 | Shapley sampling | 0.330 | 0.378 | 0.0098 | 3.0 % |
| CNN 64×64 | PFI | 0.330 | 0.454 | 0.0078 | 2.4 % |
| CNN 64×64 | Occlusion, 5×5 pixels | 0.330 | 0.496 | 0.0262 | 7.9 % |
| MLP 64×64 | Shapley sampling | 0.062 | 0.025 | 0.0058 | 9.4 % |
| MLP 64×64 | PFI | 0.062 | 0.080 | 0.0068 | 11 % |
| MLP 64×64 | Occlusion, 5×5 pixels | 0.062 | 0.126 | 0.0309 | 50 % |
| CNN 8×8 | Shapley sampling | 0.0057 | 0.0072 | 0.0005 | 8.9 % |

Of the MLP a pass is fast, and its second layer changes as a whole: the first layer's column is all that need not be
multiplied. At 8×8 its passes stay plain, which is faster. PFI and Occlusion on the 8×8 CNN take 0.002 ms a step, most
of it around the loops.
"""


def explains(name: str) -> str:
    """What of the network it explains."""
    part: Any = EXPLAINERS.resolve(name)
    if part.info.control:
        return "the image"
    if part.info.family == "Attention" and not hasattr(part, "explains"):
        return "the attention"
    return (getattr(part, "explains", None) or "probability") + (
        " only" if getattr(part, "explains_only", False) else ""
    )


def row(name: str) -> str:
    part = EXPLAINERS.resolve(name)
    return f"| [`{name}`](#{anchor(name)}) | {part.info.label} | {explains(name)} | {passes(name)} |"


def passes(name: str) -> str:
    """What it takes for an image."""
    part: Any = EXPLAINERS.resolve(name)
    if part.info.passes is not None:
        return str(part.info.passes)
    if name in PASSES:
        return PASSES[name]
    if not hasattr(part, "counted"):
        return "not stated"
    return f"{part.each} `{part.counted}`" if part.each > 1 else f"`{part.counted}`"


def anchor(name: str) -> str:
    """Of its heading. GitHub and MkDocs count equal ones in ways of their own."""
    return name.replace("+", "-plus")


def parameters(part: type) -> list[str]:
    """A line for each parameter that is not told elsewhere, and one that names those that are."""
    told = {field.name: where for base, where in SHARED if issubclass(part, base) for field in fields(base)}
    lines, others = [], {}
    for field in fields(part):
        default = "" if field.default is dataclasses.MISSING else f"={field.default!r}"
        if field.name in told:
            others.setdefault(told[field.name], []).append(f"`{field.name}{default}`")
        elif field.name != "patterns":
            lines.append(f"- `{field.name}{default}`: {described(part)[field.name]}")
    links = {"": "[most](#parameters-that-most-have)"}
    for where, names in others.items():
        link = links.get(where, f"[all of these](#{where.lower().replace(' ', '-')})")
        lines.append(f"- As {link}: {', '.join(names)}")
    return lines


def fields(part: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(part)


def described(part: type) -> dict[str, str]:
    """What the docstrings of the class and of its bases say of each attribute; the class itself last."""
    told: dict[str, str] = {}
    for base in reversed(part.__mro__):
        text = section(textwrap.dedent(inspect.cleandoc(base.__doc__ or "")), "Attributes")
        for entry in re.split(r"\n(?=\w)", text.strip()):
            name, _, rest = entry.partition(":")
            if rest:
                told[name] = plain(rest)
    return told


def prose(part: type) -> str:
    """The docstring without its sections; formulas and lists of it as they are."""
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
    """The table of the relevance rules, from the docstring that has it."""
    doc = inspect.cleandoc(LayerwiseRelevance.__doc__ or "")
    body = doc.split("\n==")[2].partition("\n")[2]
    lines = re.sub(r"\n {8,}", " ", body).splitlines()
    cells = [re.split(r"  +", plain_cell(line), maxsplit=1) for line in lines]
    legend = plain(doc.split("\n\n")[1])
    sums = plain(doc.split("\n\n")[3])
    head = "| rule | what input i gets of R_j |\n|---|---|\n"
    return f"{legend}\n\n{head}" + "\n".join(f"| {rule} | {share} |" for rule, share in cells) + f"\n\n{sums}\n"


def plain_cell(line: str) -> str:
    return line.replace("``", "`").replace("|", "&#124;")


def shared_of(heading: str) -> str:
    """What the parameters mean that a family, or most explainers, share."""
    lines = []
    for base, where in SHARED:
        if where == heading:
            own = {field.name for field in fields(base)} - {field.name for field in fields(Attribution) if heading}
            lines += [f"- `{name}`: {text}" for name, text in described(base).items() if name in own]
    return "\n".join(lines)


def families() -> dict[str, list[str]]:
    """The names of each family, those of the table above first."""
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
        text += f"\nWhat they share:\n\n{shared}\n"
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
