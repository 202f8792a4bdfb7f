"""Page that compares two methods of a suite, with one data file per method."""

from __future__ import annotations

import base64
import gzip
import io
import itertools
from typing import Any

import numpy as np
import pandas as pd

from xaibench.leaderboard.site.files import Site, SuiteEntry
from xaibench.leaderboard.site.sprites import SpriteFiles
from xaibench.leaderboard.site.suite_leaderboard import SuiteLeaderboards
from xaibench.leaderboard.site.suite_page import plain_text
from xaibench.report.page.content import ALL_CELLS, PAIR_COLUMNS, board_rows, comparison_settings, page_values
from xaibench.report.page.templating import json_block
from xaibench.runfolder.schema import CELL
from xaibench.scores.leaderboards import overall_comparisons
from xaibench.scores.summary import ALL_PAIRS

#: Columns written in single precision, because there may be millions of pairs.
_SINGLE_PRECISION = [*PAIR_COLUMNS, "p"]


def render_pairs(site: Site, entry: SuiteEntry, leaderboards: SuiteLeaderboards, pictures: SpriteFiles) -> str:
    """Render the page for two methods, and write the data file of each method.

    Args:
        site: The site.
        entry: The suite.
        leaderboards: Its numbers.
        pictures: Sprites of its samples and maps.
    """
    run, names, shown = leaderboards.run, list(leaderboards.run.explainers), pictures.layout
    combinations = _write_pair_files(site, entry, leaderboards)
    order = list(dict.fromkeys(row["explainer"] for own in leaderboards.boards.values() for row in board_rows(own)))
    cells = list(dict.fromkeys(cell for cell, _ in combinations if cell is not None))
    numbers = {cell: number for number, cell in enumerate(cells)} | {None: ALL_CELLS}
    pairs: dict[str, Any] = {
        "subject": order[0] if order else names[0],
        "whole": True,
        **comparison_settings(cells, order),
        "combinations": [[numbers[cell], list(run.metrics).index(metric)] for cell, metric in combinations],
        "pairs": {},
        "files": {},
    }
    data = page_values(run, {}) | {
        "slug": entry.slug,
        "sprites": [pictures.maps.get(name, "") for name in names],
        "pictured": [pictures.rows.get(name, ()) for name in names],
        "shown": [dict(zip(CELL, cell, strict=True)) for cell in shown.cells] if shown else [],
    }
    del data["palette"]
    return site.render(
        "site/pairs.html.j2",
        f"pairs/{entry.slug}.html",
        data,
        entry=entry,
        run=run,
        pairs_data=json_block(pairs),
        samples=pictures.samples,
        shown=[run.words_of(cell) for cell in shown.cells] if shown else [],
        limit=ALL_PAIRS,
        columns=shown.columns if shown else 0,
    )


def _write_pair_files(
    site: Site, entry: SuiteEntry, leaderboards: SuiteLeaderboards
) -> list[tuple[tuple[str, str, str] | None, str]]:
    """Write, for each method, its pairs with all later methods, as base64 of float32 ``[methods, combinations, 4]``.

    A combination is ``(cell, metric)``; its cell is None for the means over all cells. Entries without a test are
    infinite.
    Returns the combinations.
    """
    pairs, run = leaderboards.pairs, leaderboards.run
    places = {name: number for number, name in enumerate(run.explainers)}
    # ngroup is much faster than building a tuple per row: 200 methods give millions of rows.
    named = [*CELL, "metric"]
    which = pairs.groupby(named, observed=True, sort=False).ngroup().to_numpy(np.int64)
    once = pairs.iloc[np.unique(which, return_index=True)[1]]
    keys = list(zip(*(once[name].astype(str) for name in named), strict=True))
    combinations: list[tuple[tuple[str, str, str] | None, str]] = [((key[0], key[1], key[2]), key[3]) for key in keys]
    overall = overall_comparisons(leaderboards.boards)
    over_cells = {metric: len(combinations) + i for i, metric in enumerate(dict.fromkeys(overall["metric"]))}
    combinations += [(None, metric) for metric in over_cells]
    tables = pairs, overall
    which = np.concatenate([which, overall["metric"].map(over_cells).to_numpy(np.int64)])
    first, second = (
        np.concatenate([table[name].map(places).to_numpy(np.int64) for table in tables]) for name in ("first", "second")
    )
    numbers = np.concatenate([table.reindex(columns=PAIR_COLUMNS).to_numpy(np.float32) for table in tables])
    order = np.argsort(first, kind="stable")
    bounds = np.searchsorted(first[order], np.arange(len(places) + 1))
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        mine = order[start:stop]
        table = np.full((len(places) - number - 1, len(combinations), len(PAIR_COLUMNS)), np.inf, dtype="<f4")
        table[second[mine] - number - 1, which[mine]] = numbers[mine]
        site.write_data(f"{entry.slug}/pairs-{number}", base64.b64encode(table.tobytes()).decode("ascii"))
    return combinations


def write_pairs(site: Site, entry: SuiteEntry, leaderboards: SuiteLeaderboards) -> None:
    """Write all pairs for download, as Parquet and gzipped CSV."""
    import pyarrow as pa
    import pyarrow.csv

    folder = site.folder / "downloads" / entry.slug
    folder.mkdir(parents=True, exist_ok=True)
    table = plain_text(leaderboards.pairs)
    text = [name for name in table if not pd.api.types.is_numeric_dtype(table[name].dtype)]
    table = table.astype(dict.fromkeys(text, "category") | dict.fromkeys(_SINGLE_PRECISION, "float32"))
    table.to_parquet(folder / "pairs.parquet", index=False, compression="zstd")
    columns = pa.Table.from_pandas(table, preserve_index=False)
    kinds = [pa.field(one.name, pa.string() if one.name in text else one.type) for one in columns.schema]
    content = io.BytesIO()
    pyarrow.csv.write_csv(columns.cast(pa.schema(kinds)), content)
    site.write(f"downloads/{entry.slug}/pairs.csv.gz", gzip.compress(content.getvalue(), compresslevel=1, mtime=0))
