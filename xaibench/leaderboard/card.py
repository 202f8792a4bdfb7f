"""Card (``README.md``) and citation of a result."""

from __future__ import annotations

from pathlib import Path

from xaibench.hub.card_text import code_block, escape_markdown, markdown_table, readme
from xaibench.leaderboard.manifest import Manifest
from xaibench.runfolder.descriptions import read_environment, read_parts
from xaibench.runfolder.tables import SCORES


def render_card(manifest: Manifest, folder: Path) -> str:
    """Return the card of a result: description, scores, versions, how to verify and how to cite it.

    Args:
        manifest: Manifest of the result.
        folder: Folder of its tables.
    """
    method, suite = manifest.method, manifest.suite
    head = {"pretty_name": f"{method.label} on {suite.title}", "tags": ["xaibench", suite.name]}
    if method.license:
        head["license"] = method.license
    ran, needed = read_environment(folder), ", ".join(f"`{one}`" for one in manifest.code.requires)
    made = ", ".join(
        f"{name} {found}" for name, found in {"xaibench": ran.get("xaibench"), **ran.get("versions", {})}.items()
    )
    processor = str(ran.get("machine", {}).get("processor", "an unknown processor"))
    lines = [
        f"# {escape_markdown(method.label)} on {escape_markdown(suite.title)}",
        escape_markdown(method.summary),
        f"By {escape_markdown(', '.join(method.authors))}." if method.authors else "",
        f"<{method.homepage}>" if method.homepage else "",
        f"Suite `{suite.name}`, version `{suite.version}`"
        + (f", fresh seeds of round `{manifest.round}`" if manifest.round else "")
        + ". Means over the samples that the networks classify correctly, each cell counting once:",
        markdown_table(["metric", "better", "mean", "cells"], _metric_means(folder)),
        f"Made with {made}, on {escape_markdown(processor)}.",
        f"The method requires {needed}." if needed else "",
        "To verify the scores, run the method again:",
        code_block(f"xaibench results verify {manifest.folder}{' --install' * bool(needed)}", "sh"),
        "To cite it:",
        code_block(bibtex_entry(manifest), "bibtex"),
    ]
    return readme(head, "\n\n".join(line for line in lines if line))


def _metric_means(folder: Path) -> list[tuple[str, str, float, int]]:
    scores = SCORES.read(folder, ["dataset", "model", "metric", "value", "correct", "higher_is_better"])
    cells = scores[scores["correct"]].groupby(["metric", "dataset", "model"], observed=True)["value"].mean()
    upward = dict(zip(scores["metric"], scores["higher_is_better"], strict=True))
    labels = read_parts(folder).metrics
    return [
        (labels[name].label if name in labels else name, _DIRECTIONS[bool(upward[name])], float(own.mean()), len(own))
        for name, own in ((str(name), own) for name, own in cells.groupby("metric", observed=True))
    ]


_DIRECTIONS = {True: "higher", False: "lower"}


def bibtex_entry(manifest: Manifest) -> str:
    """Return a BibTeX entry for a method; a citation that is not BibTeX becomes its note."""
    method = manifest.method
    if method.citation.lstrip().startswith("@"):
        return method.citation.strip() + "\n"
    key = "".join(letter for letter in method.name if letter.isalnum())
    fields = {
        "title": method.label,
        "author": " and ".join(method.authors),
        "note": method.citation,
        "howpublished": f"\\url{{{method.homepage}}}" if method.homepage else "",
        "year": manifest.submitted[:4],
    }
    body = ",\n".join(f"  {name} = {{{_bibtex_value(text)}}}" for name, text in fields.items() if text)
    return f"@misc{{{key},\n{body}\n}}\n"


def _bibtex_value(text: str) -> str:
    """Escape text so that it cannot end a BibTeX field."""
    return " ".join(text.split()).replace("{", "(").replace("}", ")") if not text.startswith("\\url") else text
