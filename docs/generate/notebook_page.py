"""Show the notebook ``examples/quickstart.ipynb`` with its stored outputs as a page, when the site is built."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"
#: The file itself, next to the page.
DOWNLOAD = "\n\n[Download the notebook](quickstart.ipynb){ .md-button download }\n"


def page() -> str:
    """Return the page as Markdown."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(block for cell in cells for block in blocks(cell)).replace("](../docs/", "](") + DOWNLOAD


def blocks(cell: dict[str, Any]) -> Iterator[str]:
    """Yield the Markdown of a cell: its text, or its code and each of its outputs."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            png = "".join(data["image/png"]).strip()
            yield f'<img alt="The picture that the code above draws" src="data:image/png;base64,{png}">'
        else:
            yield f"```text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```"
