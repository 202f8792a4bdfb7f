"""Write docs/datasets.md from the registered data sets: ``python docs/generate/datasets.py``."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from xaibench.data import DATASETS
from xaibench.data.annotated import AnnotatedSet
from xaibench.data.annotated.folder import Folder
from xaibench.data.annotated.published import Published

PAGE = Path(__file__).parents[1] / "datasets.md"

HEAD = """# Data sets

Beside the generated [XAI-TRIS](xai-tris.md) sets, eight sets of photographs and scans whose important pixels people
have marked, read from their official downloads. None of them comes with this library; each section says how to get it.

```python
import xaibench as xb

train, val, test = xb.loading("pascal", "aeroplane,bicycle,boat,bus", root="~/data")
for images, attentions, class_ids in train:  # [32,3,224,224] float32, [32,224,224] bool, [32] int64
    ...

data = xb.load("pet", root="~/data", classes="cat,dog", size=128)
data.test.meta[0]  # {"id": ..., "file": ..., what the set adds}
```

    xaibench list datasets --root ~/data            # which are ready
    xaibench prepare pet --root ~/data --download   # fetch (where the licence lets us), build, count
    xaibench show pet --root ~/data --out pets.png  # a sheet of images, masks and labels to look at

`root` can be left out where the environment variable `XAIBENCH_DATA` names it. What is slow to build (the slices and
consensus masks of CT scans, the index of a million X-rays) is built once, below `$XAIBENCH_CACHE` or
`~/.cache/xaibench`; stop it at any time, the same command goes on.

All of them take `classes` (a string with commas, or a list; targets follow its order), `size`, `splits` (three
fractions, or `"official"` where the publishers made splits), `seed`, `normalize` (`"imagenet"`, or means and
deviations), `transform` (moves image and mask together: any of `torchvision.transforms.v2`), `include_unannotated` and
`download`; `loading` also `batch_size`, `num_workers` and `verbose`. Images are scaled bilinearly with antialiasing,
masks by the nearest pixel. Samples whose annotation is missing are left out and counted in the log; true negatives have
an empty mask. Patients, and images that show two classes, are never divided between splits.

| name | classes | size in its publication | own parameters |
|---|---|---|---|
"""


def own_parameters(part: AnnotatedSet) -> str:
    """What only this set takes, with its defaults."""
    known = inspect.signature(part.open).parameters.values()
    return ", ".join(f"`{one.name}={one.default!r}`" for one in known if one.default is not one.empty) or "none"


def row(name: str, part: AnnotatedSet) -> str:
    """Its row of the table."""
    classes = part.info.classes
    shown = ", ".join(classes) if len(classes) < 6 else f"{len(classes)}: {', '.join(classes[:4])}, ..."
    counts = ", ".join(f"{count:,} {what}" for what, count in part.info.published)
    return f"| [`{name}`](#{name}) | {shown} | {counts} | {own_parameters(part)} |\n"


def prose(part: type[AnnotatedSet]) -> str:
    """The docstring without its arguments, its references to code as Markdown."""
    text = re.split(r"\n\n(?:Args|Attributes|Raises|Example):", inspect.getdoc(part) or "")[0]
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")


def section(title: str, part: type[AnnotatedSet], facts: str = "") -> str:
    """What its docstring says, under a heading."""
    return f"\n## {title}\n\n{prose(part)}\n{facts}"


def facts(part: AnnotatedSet) -> str:
    """Source, licence, other names, how to get it."""
    steps = "\n".join(f"    {line}" for line in part.info.how_to_get.splitlines())
    aliases = sorted(alias for alias, name in DATASETS._aliases.items() if name == part.info.name)
    other = f"- Also known as: {', '.join(f'`{alias}`' for alias in aliases)}\n" if aliases else ""
    return f"\n- Source: {part.info.citation}\n- Licence: {part.info.licence}\n{other}- How to get it:\n\n{steps}\n"


def page() -> str:
    """The whole page."""
    sets = {name: part for name in DATASETS if isinstance(part := DATASETS.resolve(name), AnnotatedSet)}
    text = HEAD + "".join(row(name, part) for name, part in sets.items())
    text += "".join(section(name, type(part), facts(part)) for name, part in sets.items())
    text += section("folder:DIR", Folder) + section("published:DIR", Published)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
