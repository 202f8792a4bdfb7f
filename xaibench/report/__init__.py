"""Tables, figures and one self-contained HTML page from a run folder.

The report only reads what the runner has written; it needs no data set, model or network access.
"""

from xaibench.report.page.write import best_methods, ranked_methods, write_report
from xaibench.runfolder.schema import RunFolderError

__all__ = [
    "RunFolderError",
    "best_methods",
    "ranked_methods",
    "write_report",
]
