"""Tables and sections of docs/datasets.md, from the registered data sets."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

from prose import with_blocks

from xaibench.data import DATASETS
from xaibench.data.annotated import AnnotatedSet
from xaibench.data.photographs.image_folder import OwnFolder
from xaibench.data.photographs.saliency_bench_release import SaliencyBenchRelease
from xaibench.data.volume_folder import OwnVolumes

PAGE = Path(__file__).parents[1] / "datasets.md"

SIZES = """\
| name | classes | truth | size in its publication | images in Saliency-Bench, April 2025 | own parameters |
|---|---|---|---|---|---|
"""
#: Parameters of every annotated set.
COMMON = inspect.signature(AnnotatedSet.__call__).parameters


def own_parameters(part: AnnotatedSet) -> str:
    """Return the parameters that only this set has, with their defaults."""
    known = inspect.signature(part).parameters.values()
    return ", ".join(f"`{one.name}={one.default!r}`" for one in known if one.name not in COMMON) or "none"


def row(name: str, part: AnnotatedSet) -> str:
    """Return the row of a set in the table."""
    classes = part.info.classes
    shown = ", ".join(classes) if len(classes) < 6 else f"{len(classes)}: {', '.join(classes[:4])}, ..."
    counts = ", ".join(f"{count:,} {what}" for what, count in part.info.published)
    known = f"{counts} | {part.info.benchmark_size:,}"
    return f"| [`{name}`](#{name}) | {shown} | {part.info.truth} | {known} | {own_parameters(part)} |\n"


def prose(part: type[AnnotatedSet]) -> str:
    """Return the docstring without its sections, with references to code as Markdown."""
    text = re.split(r"\n\n(?:Args|Attributes|Raises|Example):", inspect.getdoc(part) or "")[0]
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")


def section(title: str, part: type[AnnotatedSet], facts: str = "", level: int = 2) -> str:
    """Return the docstring of a set under a heading."""
    return f"\n{'#' * level} {title}\n\n{prose(part)}\n{facts}"


def facts(part: AnnotatedSet) -> str:
    """Return source, license, other names, and how to get the set."""
    wrapped = (textwrap.wrap(line, 100, break_on_hyphens=False) for line in part.info.how_to_get.splitlines())
    steps = "\n".join(line for lines in wrapped for line in lines)
    if part.archives:
        steps = f'xb.load("{part.info.name}", download=True), or by hand:\n{steps}'
    folder = f"DIR/{part.folders[0]}".rstrip("/")
    steps += "\nThese files are looked for:"
    steps += "".join(f"\n   {folder}/{pattern}  ({what})" for what, pattern in part.contents.items())
    aliases = sorted(alias for alias, name in DATASETS._aliases.items() if name == part.info.name)
    other = f"- Also known as: {', '.join(f'`{alias}`' for alias in aliases)}\n" if aliases else ""
    listed = f"- Source: {part.info.citation}\n- License: {part.info.license}\n{other}"
    return f"\n{listed}\nHow to get it:\n\n```text\n{steps}\n```\n"


def page() -> str:
    """Return the page with new tables and sections."""
    sets = {name: part for name in DATASETS if isinstance(part := DATASETS.resolve(name), AnnotatedSet)}
    where = "".join(
        f"| [`{name}`](#{name}) | {part.info.address} | {part.info.download_size} | {part.info.by_hand} |\n"
        for name, part in sets.items()
    )
    own = {"folder:DIR": OwnFolder, "volumes:DIR": OwnVolumes, "published:DIR": SaliencyBenchRelease}
    sections = [section(name, type(part), facts(part), level=3) for name, part in sets.items()]
    sections += [section(title, part) for title, part in own.items()]
    blocks = {
        "downloads": f"| name | where | download | by hand |\n|---|---|---|---|\n{where}",
        "sizes": f"{SIZES}{''.join(row(name, part) for name, part in sets.items())}",
        "sets": "".join(sections),
    }
    return with_blocks(PAGE, blocks)
