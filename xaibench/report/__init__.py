"""Tables, figures and one self-contained HTML page from a run folder.

The report reads what the runner has written and needs nothing else: no data set, no model, no network.
"""

from xaibench.report.folder import RunFolderError
from xaibench.report.page import best_methods, write_report

__all__ = ["RunFolderError", "best_methods", "write_report"]
