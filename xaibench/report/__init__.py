"""Tables, figures and one self-contained HTML page from a run folder.

The report reads what the runner has written and needs nothing else: no data set, no model, no network.
"""

from xaibench.report.agreement import agreement_figure
from xaibench.report.curves import curve_figure
from xaibench.report.files import RunFolderError
from xaibench.report.page import best_methods, write_report

__all__ = ["RunFolderError", "agreement_figure", "best_methods", "curve_figure", "write_report"]
