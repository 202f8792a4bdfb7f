"""Tables of docs/explainers.md, and one page per explainer, from the registry and the docstrings."""

from __future__ import annotations

import csv
import functools
import inspect
import re
import textwrap
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from prose import plain, section, with_blocks

from xaibench.explainers import EXPLAINERS
from xaibench.explainers.base import Attribution
from xaibench.explainers.cam.gradcam import FeatureMaps
from xaibench.explainers.perturbation.feature_attribution import FeatureAttribution
from xaibench.explainers.propagation.lrp import LayerwiseRelevance

PAGE = Path(__file__).parents[1] / "explainers.md"

#: Families in the order of the page, with a description of each.
FAMILIES = {
    heading: " ".join(text.split())
    for heading, text in tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8")).items()
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

#: The page of one explainer; its reference comes from the docstring.
ENTRY = """# {label}: `{name}`

{purpose}

{picture}
| property | value |
|---|---|
| family | [{family}](../explainers.md#{anchor}) |
| explains | {explains} |
| passes per image | {passes} |
| needs a gradient | {gradient} |

## Example

```python
maps = xb.explain("{name}", model, images, targets)  # [N, H, W]
```

## Limits

{limits}
{source}
## Reference

{parameters}"""

PICTURE = """![Image and map of {label}](../images/explainers/{file}.png)

*An XAI-TRIS image and its map; the outline is the [ground truth](../explainers.md#pictures).*
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
    return f"| [`{name}`](explainers/{file_name(name)}.md) | {part.info.label} | {explains(name)} | {passes(name)} |"


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


def file_name(name: str) -> str:
    """Return the name of the page and the picture of an explainer, without suffix."""
    return name.replace("+", "-plus")


def anchor(heading: str) -> str:
    """Return the anchor of a heading of the overview."""
    return heading.lower().replace(" ", "-")


def shared_parameters(part: type) -> str:
    """Return links to the descriptions of the parameters that an explainer shares; the reference has its own ones."""
    where_told = {field.name: where for base, where in SHARED if issubclass(part, base) for field in fields(base)}
    shared: dict[str, list[str]] = {}
    for field in fields(part):
        if field.name in where_told:
            default = "" if field.default is MISSING else f"={field.default!r}"
            shared.setdefault(where_told[field.name], []).append(f"`{field.name}{default}`")
    return "".join(
        f"As in [{where or 'most explainers'}](../explainers.md#{anchor(where or 'Shared parameters')}): "
        f"{', '.join(names)}.\n\n"
        for where, names in shared.items()
    )


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


def limits(name: str) -> str:
    """Return the limits of an explainer, from its record and the published measurements."""
    info = EXPLAINERS.resolve(name).info
    lines = []
    if info.control:
        lines.append("It does not use the network: a control, not an explanation.")
    if info.needs_convolution:
        lines.append("Only for networks with a convolution.")
    if info.needs_gradient and not info.control:
        lines.append("Not for networks without gradient (quantized, exported).")
    if networks := refusals().get(name):
        lines.append(f"Refuses {', '.join(networks)} ([reasons](../explainers.md#supported-networks)).")
    if info.exact_zero is False and not info.control:
        measured = leaks().get(name)
        share = (
            f" ({measured} times what chance puts there, in [certified networks](../certified.md))" if measured else ""
        )
        lines.append(f"Marks pixels that cannot change the output{share}.")
    if info.exact_zero:
        lines.append("Pixels that cannot change the output get exactly zero.")
    return "\n".join(f"- {line}" for line in lines) or "None known."


@functools.cache
def refusals() -> dict[str, list[str]]:
    """Return the networks that an explainer refuses."""
    with (PAGE.parent / "tables" / "explainers-networks.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return {row["explainer"]: [name for name, cell in row.items() if cell == "refused"] for row in rows}


@functools.cache
def leaks() -> dict[str, str]:
    """Return the mass on pixels that cannot matter relative to chance, from the table of docs/certified.md."""
    with (PAGE.parent / "tables" / "certified-every-explainer.csv").open(encoding="utf-8", newline="") as file:
        return {row[0]: row[2] for row in csv.reader(file)}


def entry(name: str) -> str:
    """Return the page of one explainer, without its reference."""
    part = EXPLAINERS.resolve(name)
    info, file = part.info, file_name(name)
    heading = info.family or "Others"
    description = FAMILIES.get(heading, "").partition(". ")[0].rstrip(".") + "."
    summary = plain(inspect.cleandoc(part.__doc__ or "").partition("\n\n")[0])
    return ENTRY.format(
        name=name,
        label=info.label,
        purpose=f"{info.label} is {'a control' if info.control else 'an explainer'} of the family *{heading}*. "
        f"{description}\n\n**Definition.** {summary}",
        picture=PICTURE.format(label=info.label, file=file),
        family=heading,
        anchor=anchor(heading),
        explains=explains(name),
        passes=passes(name),
        gradient="yes" if info.needs_gradient and not info.control else "no",
        limits=limits(name),
        source=f"\n## Source\n\n{info.citation}\n" if info.citation else "",
        parameters=shared_parameters(part),
    )


def entries() -> dict[str, str]:
    """Return the page of each explainer, without its reference, by file name."""
    return {name: entry(name) for name in EXPLAINERS}


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
    """Return the section of one family."""
    text = f"## {heading}\n"
    if heading in FAMILIES:
        text += f"\n{textwrap.fill(FAMILIES[heading], 120)}\n"
    rows = "\n".join(row(name) for name in names)
    text += f"\n| name | label | explains | passes |\n|---|---|---|---|\n{rows}\n"
    if heading == "Relevance":
        text += f"\n{rules()}"
    if shared := shared_of(heading):
        text += f"\nShared parameters:\n\n{shared}\n"
    return text


def gallery() -> str:
    """Return the pictures of all explainers, each with a link to its page."""
    entries = (
        f"[{EXPLAINERS.resolve(name).info.label}![](images/explainers/{file_name(name)}.png)]"
        f"(explainers/{file_name(name)}.md)"
        for name in EXPLAINERS
    )
    return '<div class="gallery" markdown>\n\n' + "\n".join(entries) + "\n\n</div>"


def page() -> str:
    """Return the overview with new tables and pictures."""
    tables = "\n".join(family(heading, names) for heading, names in families().items())
    return with_blocks(PAGE, {"families": tables, "pictures": gallery(), "shared": shared_of("")})
