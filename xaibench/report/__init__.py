"""Tables, figures and one self-contained HTML page from a run folder.

The report only reads what the runner has written; it needs no data set, model or network access.
"""

from xaibench.report.figures.comparisons import agreement_figure
from xaibench.report.figures.curves import curve_figure
from xaibench.report.figures.map_sheets import show
from xaibench.report.page.write import best_methods, ranked_methods, write_report
from xaibench.runfolder.tables import RunFolderError

__all__ = [
    "RunFolderError",
    "agreement_figure",
    "best_methods",
    "curve_figure",
    "ranked_methods",
    "show",
    "write_report",
]
