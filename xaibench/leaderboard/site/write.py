"""Write the site of a results repository: a page per suite, method and pair of methods, and downloads."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from xaibench.core.messages import unknown
from xaibench.core.truth_kinds import TRUTHS
from xaibench.leaderboard.citation import bibtex_entry
from xaibench.leaderboard.repository import open_repository
from xaibench.leaderboard.site.files import Site, SiteError, SuiteEntry, replace_folder
from xaibench.leaderboard.site.method_page import MethodOnSuite, method_rows, write_method
from xaibench.leaderboard.site.pairs import render_pairs, write_pairs
from xaibench.leaderboard.site.read import ExcludedResult, Result, SuiteKey, by_suite, read_results
from xaibench.leaderboard.site.sprites import write_pictures
from xaibench.leaderboard.site.suite_leaderboard import SuiteLeaderboards, build_leaderboards
from xaibench.leaderboard.site.suite_page import (
    CHOICE,
    OVERVIEW,
    SuiteSummaryRow,
    leaderboard_extras,
    render_suite,
    suite_summary_rows,
    write_tables,
)
from xaibench.report.numbers.leaderboards import Boards
from xaibench.report.page.figure_files import file_names


@dataclasses.dataclass(frozen=True)
class BuiltSite:
    """Summary of a built site.

    Attributes:
        page: The first page.
        suites: Number of suites, counting each version and round.
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
    progress: Callable[[str], None] = lambda said: None,
) -> BuiltSite:
    """Write a static site of all results of a repository. It needs no server and loads nothing from elsewhere.

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
    with open_repository(repository) as place:
        results, left_out = read_results(place)
        _raise_if_strict(left_out, strict=strict)
        if not results:
            raise SiteError(f"{repository}: none of its results can be shown; the first: {left_out[0].reason}")
        with replace_folder(out) as folder:
            site = Site(folder, title, _suite_entries(results, first), _method_addresses(results), left_out)
            builder = _build(site, results, progress, strict=strict)
            if not builder.has_first_page:  # its scores cannot be shown: another suite opens the site
                results = [one for one in results if one.key in builder.pages]
                if not results:
                    raise SiteError(f"None of the results can be shown; the first: {builder.site.left_out[0].reason}")
                entries = _suite_entries(results, first)
                site = dataclasses.replace(site, suites=entries, left_out=builder.site.left_out)
                builder = _build(site, results, progress, strict=strict)
            builder.finish(results)
    shown = builder.site
    return BuiltSite(out / "index.html", len(shown.suites), len(builder.methods), tuple(shown.left_out))


def _build(site: Site, results: Sequence[Result], progress: Callable[[str], None], *, strict: bool) -> _SiteBuilder:
    builder = _SiteBuilder(site, strict)
    for group in _group_versions(results):
        builder.add(group, progress)
    return builder


def _raise_if_strict(left_out: Sequence[ExcludedResult], *, strict: bool) -> None:
    if strict and left_out:
        more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        raise SiteError(f"{left_out[0].name} cannot be shown{more}: {left_out[0].reason}")


def _suite_entries(results: Sequence[Result], first: str = "") -> list[SuiteEntry]:
    """Return the suites; the first page is that of ``first`` or of the suite with most methods times cells."""
    suites = by_suite(results)
    could = [key for key in suites if not key.round and first in ("", key.name)]
    if first and not could:
        raise SiteError(unknown("There are no results of the suite", first, {key.name for key in suites}))
    opening = max(could, key=lambda key: len(suites[key]) * _count_cells(suites[key][0]), default=next(iter(suites)))
    slugs = file_names(key.words for key in suites)
    return [
        SuiteEntry(
            key,
            mine[0].facts.parts.title or key.name,
            slug,
            "index.html" if key == opening else f"suites/{slug}.html",
        )
        for (key, mine), slug in zip(suites.items(), slugs, strict=True)
    ]


def _count_cells(result: Result) -> int:
    """Return the number of cells of a suite; 1 if its results do not state it."""
    return len(result.facts.accuracy) or 1


def _method_addresses(results: Sequence[Result]) -> dict[str, str]:
    names = sorted({one.manifest.method.name for one in results})
    return dict(zip(names, file_names(names), strict=True))


def _group_versions(results: Sequence[Result]) -> list[list[tuple[SuiteKey, list[Result]]]]:
    """Group suites by version, rounds of fresh seeds first: the public page shows the scores of the last round."""
    groups: dict[tuple[str, str], list[tuple[SuiteKey, list[Result]]]] = {}
    for key, mine in by_suite(results).items():
        groups.setdefault((key.name, key.version), []).append((key, mine))
    return [sorted(group, key=lambda one: (not one[0].round, one[0].round)) for group in groups.values()]


class _SiteBuilder:
    """Writes one suite after the other, and collects what the pages of methods and the table of suites need."""

    def __init__(self, site: Site, strict: bool) -> None:
        self.site, self.strict = site, strict
        self.methods: dict[str, list[MethodOnSuite]] = {}
        self.pages: dict[SuiteKey, str] = {}
        self._truths: dict[str, list[SuiteSummaryRow]] = {}

    def add(self, group: Sequence[tuple[SuiteKey, list[Result]]], progress: Callable[[str], None]) -> None:
        """Add a version of a suite with its rounds."""
        fresh: Mapping[str, Boards] = {}
        for key, results in group:
            progress(f"{key.words}: {len(results)} result{'s' * (len(results) != 1)}")
            if self.pages:
                gc.collect()  # free the scores of the suite before
            leaderboards, left_out = build_leaderboards(key, results)
            _raise_if_strict(left_out, strict=self.strict)
            self.site = dataclasses.replace(self.site, left_out=[*self.site.left_out, *left_out])
            if leaderboards is not None:
                self._add(leaderboards, {} if key.round else fresh)
                fresh = leaderboards.boards if key.round else {}
            del leaderboards

    def _add(self, leaderboards: SuiteLeaderboards, fresh: Mapping[str, Boards]) -> None:
        site = self.site
        entry = next(one for one in site.suites if one.key == leaderboards.key)
        extras = leaderboard_extras(site, leaderboards, fresh)
        folders = {name: result.folder for name, result in leaderboards.results.items()}
        pictures = write_pictures(site, entry.slug, next(iter(leaderboards.results.values())).facts, folders)
        pairs = f"pairs/{entry.slug}.html"
        self.pages[leaderboards.key] = render_suite(site, entry, leaderboards, extras, pairs)
        site.write(pairs, render_pairs(site, entry, leaderboards, pictures))
        write_tables(site, entry, leaderboards, extras)
        write_pairs(site, entry, leaderboards)
        for name, row in method_rows(site, entry, leaderboards, extras, pictures).items():
            self.methods.setdefault(name, []).append(row)
        for truth, line in suite_summary_rows(entry, leaderboards).items():
            self._truths.setdefault(truth, []).append(line)

    @property
    def has_first_page(self) -> bool:
        """Whether the suite of the first page is shown."""
        return any(one.page == "index.html" for one in self._shown_suites())

    def _shown_suites(self) -> list[SuiteEntry]:
        return [one for one in self.site.suites if one.key in self.pages]

    def finish(self, results: Sequence[Result]) -> None:
        """Write the pages that need all suites."""
        site = self.site = dataclasses.replace(self.site, suites=self._shown_suites())
        truths = {truth: self._truths[truth] for truth in TRUTHS if truth in self._truths}
        truths |= {truth: rows for truth, rows in self._truths.items() if truth not in truths}
        parts: Any = site.templates.get_template("site/suites.html.j2").module
        for entry in site.suites:
            root = "../" * entry.page.count("/")
            page = self.pages[entry.key].replace(CHOICE, parts.choice(site, entry.key, root), 1)
            site.write(entry.page, page.replace(OVERVIEW, parts.overview(site, truths, entry.key, root), 1))
        for name, rows in self.methods.items():
            write_method(site, name, sorted(rows, key=_history_key))
        self._write_downloads(results)
        site.write_assets()

    def _write_downloads(self, results: Sequence[Result]) -> None:
        shown = {one.entry.key: one for rows in self.methods.values() for one in rows}
        mine = [one for one in results if one.key in shown]
        self.site.write_table("results", pd.DataFrame([_result_row(one) for one in mine]))
        entries = dict.fromkeys(bibtex_entry(one.manifest).strip() for one in mine)
        self.site.write("downloads/citations.bib", "\n\n".join(entries) + "\n")
        labels = {name: rows[-1].result.manifest.method.label for name, rows in sorted(self.methods.items())}
        page = self.site.render("site/downloads.html.j2", "downloads.html", {}, labels=labels)
        self.site.write("downloads.html", page)


def _history_key(row: MethodOnSuite) -> tuple[str, str, str, str]:
    return row.entry.key.name, row.result.received, row.entry.key.version, row.entry.key.round


def _result_row(result: Result) -> dict[str, object]:
    manifest, method = result.manifest, result.manifest.method
    return {
        **{"method": method.name, "label": method.label, "control": result.is_control, "entry": method.entry},
        **{"suite": result.key.name, "version": result.key.version, "round": result.key.round},
        **{"received": result.received, "license": method.license, "authors": ", ".join(method.authors)},
        **{"tuned_on": ", ".join(method.tuned_on), "ignores": ", ".join(result.ignores)},
        **{"homepage": method.homepage, "passes": method.passes, "citation": method.citation},
        **{"repository": manifest.code.repository, "commit": manifest.code.commit, "sha256": manifest.code.sha256},
        **{"requires": " ".join(manifest.code.requires), "verified": result.verdict},
    }
