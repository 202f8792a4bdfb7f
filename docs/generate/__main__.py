"""Write every page, picture and stub that derives from the registered parts.

python docs/generate            # writes what is stale
python docs/generate --check    # lists what is stale, and fails if anything is

Commands of their own: ``metric_trials.py`` (verdicts of the metrics), ``checksums.py``, ``published_networks.py`` and
``published_scores.py`` (files of the published suites).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import data_sets
import explainer_pictures
import explainers
import metrics
import pictures
import truths

from xaibench.cli.list_command import PARTS_FILE, describe_parts
from xaibench.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
#: The file that ``xaibench list`` reads.
LISTED = ROOT / "xaibench" / "cli" / PARTS_FILE
STUB = ROOT / "xaibench" / "metrics" / "registered_functions.pyi"


def stub() -> str:
    """Return the stub from which type checkers and editors learn where the metrics are defined, sorted by module."""
    targets = sorted(METRICS.target(name).split(":") for name in METRICS)
    imports = "".join(f"from {module} import {name} as {name}\n" for module, name in targets)
    return f"# Written by docs/generate from the table of metrics.\n{imports}"


def derived() -> dict[Path, str]:
    """Return the content of every derived file by its path."""
    svgs = pictures.pictures()
    drawings = {pictures.FOLDER / f"{name}.svg": svg for name, svg in svgs.items()}
    pages = {
        metrics.PAGE: metrics.page(),
        explainers.PAGE: explainers.page(),
        data_sets.PAGE: data_sets.page(),
        truths.PAGE: truths.page(),
    }
    return (
        drawings | pages | {STUB: stub()} | {LISTED: json.dumps(describe_parts(), indent=1, ensure_ascii=False) + "\n"}
    )


def is_stale(path: Path, text: str) -> bool:
    """Compare a file with its new content; only the texts of a picture count, not the last digit of a coordinate."""
    if not path.exists():
        return True
    contents = [path.read_text(encoding="utf-8"), text]
    if path.suffix == ".svg":
        return len({tuple(re.findall(r">([^<\n]+)</(?:text|title)>", content)) for content in contents}) > 1
    return contents[0] != contents[1]


def main() -> int:
    """Write or list the stale files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="list stale files instead of writing them")
    check = parser.parse_args().check
    wanted = derived()
    missing = explainer_pictures.missing()
    stale = [*(path for path, text in wanted.items() if is_stale(path, text)), *missing]
    shown = {*wanted, *map(explainer_pictures.path, explainers.EXPLAINERS)}
    drawn = [*pictures.FOLDER.glob("*.svg"), *explainer_pictures.FOLDER.glob("*.png")]
    unknown = sorted(path for path in drawn if path not in shown)
    for path in stale:
        if path in missing and not check:
            explainer_pictures.draw(missing[path])
        elif not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
        print(f"{'stale' if check else 'wrote'} {path.resolve().relative_to(ROOT)}")
    for path in unknown:
        if not check:
            path.unlink()
        print(f"{'no part has' if check else 'deleted'} {path.resolve().relative_to(ROOT)}")
    if check and (stale or unknown):
        print("Run `python docs/generate`.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
