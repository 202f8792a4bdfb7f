"""The result of an audit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.auditing.evidence import Evidence
from xaibench.auditing.page import render
from xaibench.auditing.verdicts import sort_key
from xaibench.core.files import atomic_path

if TYPE_CHECKING:
    import pandas as pd


class Audit(Evidence):
    """The result of :func:`xaibench.audit`.

    ``print(audit)`` shows the verdicts, ``audit.table()`` the numbers, and ``audit.write(directory)`` writes the
    evidence sheet. It has the attributes of :class:`xaibench.auditing.evidence.Evidence`.
    """

    def table(self) -> pd.DataFrame:
        """Summarize the verdicts.

        Returns:
            One row per explainer: verdict, corrected p-value, mean score per question, images needed, and why.
        """
        import pandas as pd

        rows = []
        for verdict in self.verdicts:
            row: dict[str, Any] = {"explainer": verdict.explainer, "verdict": verdict.outcome, "p": verdict.p}
            row |= {q.key: q.means()[verdict.explainer] for q in self.questions if not q.skipped}
            rows.append(row | {"images_needed": verdict.needed, "why": " ".join(verdict.reasons)})
        return pd.DataFrame(rows)

    def write(self, directory: str | os.PathLike[str]) -> Path:
        """Write ``audit.json`` and the evidence sheet ``audit.html``.

        Args:
            directory: Made if it does not exist.

        Returns:
            Path of the page.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        for name, content in (("audit.json", text + "\n"), ("audit.html", render(self))):
            with atomic_path(folder / name) as path:
                path.write_text(content, encoding="utf-8")
        return folder / "audit.html"

    def __str__(self) -> str:
        lines = [self.headline, ""]
        width = max(map(len, (v.explainer for v in self.verdicts)), default=0)
        for verdict in sorted(self.verdicts, key=sort_key):
            needed = f" About {verdict.needed} images would decide." if verdict.needed else ""
            lines.append(f"{verdict.explainer:<{width}}  {verdict.outcome:<9}  {' '.join(verdict.reasons)}{needed}")
        lines += [f"{label:<{width}}  not tested {why}" for label, why in self.inapplicable.items()]
        lines += ["", *(f"{q.title}: not asked, {q.skipped}." for q in self.questions if q.skipped)]
        lines += [finding.text for finding in self.findings]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)
