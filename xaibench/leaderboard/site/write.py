"""Write the site of a results repository: a page per suite, method and pair of methods, and downloads."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from xaibench.core.messages import unknown
from xaibench.core.truth_kinds import TRUTHS
from xaibench.leaderboard.repository import open_repository
from xaibench.leaderboard.site.files import Site, SiteError, SuiteEntry, replace_folder, write_pictures
from xaibench.leaderboard.site.method_page import MethodOnSuite, method_rows, write_method
from xaibench.leaderboard.site.results import ExcludedResult, Result, build_leaderboards, by_suite, read_results
from xaibench.leaderboard.site.suite_page import (
    CHOICE,
    OVERVIEW,
    SuiteSummaryRow,
    render_pairs,
    render_suite,
    suite_summary_rows,
    write_pairs,
    write_tables,
)
from xaibench.report.page.figure_files import file_names


@dataclasses.dataclass(frozen=True)
class BuiltSite:
    """Summary of a built site.

    Attributes:
        page: The first page.
        suites: Number of suites, counting each version.
        methods: Number of methods.
        left_out: Results that are not shown, and why.
    """

    page: Path
    suites: int
    methods: int
    left_out: tuple[ExcludedResult, ...]


def write_site(
    repository: Path | str,
    out: Path | str,
    *,
    strict: bool = False,
    title: str = "Saliency maps, compared",
    first: str = "",
    progress: Callable[[str], None] = lambda line: None,
) -> BuiltSite:
    """Write a static site of all results of a repository. It needs no server and loads nothing from elsewhere.

    Each result is checked first (:func:`xaibench.leaderboard.check`); results that fail are listed with the reason.
    The same results give the same files. If the site cannot be completed, a previous one is left unchanged.

    Args:
        repository: A folder with ``METHOD/SUITE@VERSION`` below it, or ``"hf://owner/name"``.
        out: A new folder, or an existing site, which is replaced.
        strict: Raise an error for a result that cannot be shown. Otherwise it is excluded and listed on the pages.
        title: Title of the site.
        first: Suite of the first page. Default: the one with most information, that is, methods times cells.
        progress: Called with a message for each suite.

    Returns:
        A summary of the site.

    Raises:
        ResultError: If there are no results.
        MissingDataError: If the repository does not exist on the Hub, or the Hub cannot be reached.
        SiteError: If no result can be shown, or one cannot be shown and ``strict`` is set, or there is no result of
            the suite ``first``, or ``out`` is not a site.
        OSError: If ``out`` cannot be written.
    """
    out = Path(out)
    with open_repository(repository) as folder:
        results, excluded = read_results(folder)
        _raise_if_strict(excluded, strict=strict)
        if not results:
            raise SiteError(f"{repository}: none of its results can be shown; the first: {excluded[0].reason}")
        with replace_folder(out) as temporary:
            methods = sorted({one.manifest.method for one in results})
            addresses = dict(zip(methods, file_names(methods), strict=True))
            builder = _SiteBuilder(Site(temporary, title, _suite_entries(results, first), addresses, excluded), strict)
            for entry in builder.site.suites:
                builder.add(entry, [one for one in results if one.manifest.suite_folder == entry.key], progress)
            builder.finish(results)
    shown = builder.site
    return BuiltSite(out / "index.html", len(shown.suites), len(builder.methods), tuple(shown.left_out))


def _raise_if_strict(excluded: Sequence[ExcludedResult], *, strict: bool) -> None:
    if strict and excluded:
        more = f" (and {len(excluded) - 1} more)" if len(excluded) > 1 else ""
        raise SiteError(f"{excluded[0].name} cannot be shown{more}: {excluded[0].reason}")


def _suite_entries(results: Sequence[Result], first: str = "") -> list[SuiteEntry]:
    """Return the suites; the first page is that of ``first`` or of the suite with most methods times cells."""
    suites = by_suite(results)
    candidates = [key for key in suites if first in ("", key.partition("@")[0])]
    if not candidates:
        raise SiteError(unknown("There are no results of the suite", first, {key.partition("@")[0] for key in suites}))
    opening = max(candidates, key=lambda key: len(suites[key]) * (len(suites[key][0].facts.accuracy) or 1))
    entries = []
    for (key, mine), slug in zip(suites.items(), file_names(suites), strict=True):
        suite, _, version = key.partition("@")
        page = "index.html" if key == opening else f"suites/{slug}.html"
        entries.append(SuiteEntry(key, suite, version, mine[0].facts.parts.title or suite, slug, page))
    return entries


class _SiteBuilder:
    """Writes one suite after the other, and collects what the pages of methods and the table of suites need."""

    def __init__(self, site: Site, strict: bool) -> None:
        self.site, self.strict = site, strict
        self.methods: dict[str, list[MethodOnSuite]] = {}
        self._pages: dict[str, str] = {}
        self._truths: dict[str, list[SuiteSummaryRow]] = {}

    def add(self, entry: SuiteEntry, results: Sequence[Result], progress: Callable[[str], None]) -> None:
        """Add a version of a suite."""
        progress(f"{entry.key}: {len(results)} result{'s' * (len(results) != 1)}")
        if self._pages:
            gc.collect()  # free the scores of the suite before
        leaderboards, excluded = build_leaderboards(results)
        _raise_if_strict(excluded, strict=self.strict)
        site = self.site = dataclasses.replace(self.site, left_out=[*self.site.left_out, *excluded])
        if leaderboards is None:
            return
        pictures = write_pictures(site, entry.slug, leaderboards)
        pairs = f"pairs/{entry.slug}.html"
        self._pages[entry.key] = render_suite(site, entry, leaderboards, pairs)
        site.write(pairs, render_pairs(site, entry, leaderboards, pictures))
        write_tables(site, entry, leaderboards)
        write_pairs(site, entry, leaderboards)
        for name, row in method_rows(site, entry, leaderboards, pictures).items():
            self.methods.setdefault(name, []).append(row)
        for truth, line in suite_summary_rows(entry, leaderboards).items():
            self._truths.setdefault(truth, []).append(line)

    def finish(self, results: Sequence[Result]) -> None:
        """Write the pages that need all suites."""
        shown = [one for one in self.site.suites if one.key in self._pages]
        if not shown:
            raise SiteError(f"None of the results can be shown; the first: {self.site.left_out[0].reason}")
        site = self.site = dataclasses.replace(self.site, suites=shown)
        truths = {truth: self._truths[truth] for truth in TRUTHS if truth in self._truths}
        truths |= {truth: rows for truth, rows in self._truths.items() if truth not in truths}
        macros: Any = site.templates.get_template("site/suites.html.j2").module
        for entry in site.suites:
            root = "../" * entry.page.count("/")
            page = self._pages[entry.key].replace(CHOICE, macros.choice(site, entry.key, root), 1)
            site.write(entry.page, page.replace(OVERVIEW, macros.overview(site, truths, entry.key, root), 1))
        if all(entry.page != "index.html" for entry in site.suites):  # the scores of its suite cannot be shown
            site.write("index.html", f'<meta http-equiv="refresh" content="0; url={site.suites[0].page}">\n')
        for name, rows in self.methods.items():
            write_method(site, name, sorted(rows, key=lambda row: (row.entry.suite, row.result.manifest.submitted)))
        mine = [one for one in results if one.manifest.suite_folder in self._pages]
        site.write_table("results", pd.DataFrame([_result_row(one) for one in mine]))
        entries = dict.fromkeys(one.manifest.bibtex() for one in mine)
        site.write("downloads/citations.bib", "\n\n".join(entries) + "\n")
        labels = {name: rows[-1].result.manifest.label for name, rows in sorted(self.methods.items())}
        site.write("downloads.html", site.render("site/downloads.html.j2", "downloads.html", {}, labels=labels))
        site.write_assets()


def _result_row(result: Result) -> dict[str, object]:
    manifest = result.manifest
    names = ("method", "label", "entry", "suite", "version", "submitted", "license", "homepage", "passes", "citation")
    lists = {"authors": manifest.authors, "tuned_on": manifest.tuned_on, "ignores": result.ignores}
    return {
        **{name: getattr(manifest, name) for name in (*names, "repository", "commit")},
        **{name: ", ".join(texts) for name, texts in lists.items()},
        **{"control": result.is_control, "verified": result.verdict},
    }
