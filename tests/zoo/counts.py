"""Count for every explainer how many networks of the zoo it explains rightly, and how many it refuses.

python tests/zoo/counts.py [--all] [--processes N]     # writes the tables of docs/explainers.md
"""

import argparse
import functools
import multiprocessing
import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from zoo import idioms
from zoo.networks import ZOO
from zoo.verdicts import MANY, METHODS, Trial, WrongError

PAGE = Path(__file__).parents[2] / "docs" / "explainers.md"

#: Headings of the kinds of networks.
KINDS = {
    "tensors written in place": idioms.WRITTEN,
    "activations in other words": idioms.ACTIVATIONS,
    "weights computed, tied, exported, of any type": idioms.WEIGHTS,
    "not a pure function of one image": idioms.IMPURE,
    "outputs of all forms": idioms.OUTPUTS,
    "architectures": idioms.ARCHITECTURES,
    "torchvision": [name for name in ZOO if name.startswith("torchvision ")],
    "timm": [name for name in ZOO if name.startswith("timm ")],
}


def verdicts(explainers: Sequence[str], name: str) -> tuple[str, dict[str, str]]:
    """Return the verdict of each explainer on a network."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found, trial = {}, Trial(ZOO[name])
    for explainer in explainers:
        try:
            found[explainer] = trial.verdict(explainer)
        except WrongError as error:
            found[explainer] = f"wrong: {error}"
    return name, found


def tables(found: dict[str, dict[str, str]]) -> str:
    """Return the two tables."""
    explainers = next(iter(found.values()))
    by_explainer = {name: Counter(row[name] for row in found.values()) for name in explainers}
    rows: dict[tuple[int, int], list[str]] = {}
    for name, counts in by_explainer.items():
        rows.setdefault((counts["right"], counts["refused"]), []).append(f"`{name}`")
    lines = ["| networks | number | right | refused |", "|---|--:|--:|--:|"]
    for kind, names in KINDS.items():
        counts = Counter(verdict for name in names if name in found for verdict in found[name].values())
        lines.append(f"| {kind} | {sum(name in found for name in names)} | {counts['right']} | {counts['refused']} |")
    total = Counter(verdict for row in found.values() for verdict in row.values())
    lines.append(f"| all | {len(found)} | {total['right']} | {total['refused']} |")
    lines += ["", "| explainer | right | refused |", "|---|--:|--:|"]
    for (right, refused), names in sorted(rows.items(), reverse=True):
        lines.append(f"| {', '.join(names)} | {right} | {refused} |")
    return "\n".join(lines)


def main() -> int:
    """Try every explainer on every network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="all explainers, not those that stand for others")
    options = parser.parse_args()
    explainers = METHODS if options.all else MANY
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        found = dict(pool.imap_unordered(functools.partial(verdicts, explainers), ZOO))
    wrong = [
        f"{name}, {explainer}: {verdict}"
        for name, row in found.items()
        for explainer, verdict in row.items()
        if verdict not in ("right", "refused")
    ]
    print("\n".join(wrong))
    if wrong:
        print(f"{len(wrong)} are neither right nor refused; the tables are not written.")
        return 1
    text = PAGE.read_text(encoding="utf-8")
    block = r"(<!-- zoo -->\n).*?(?=\n<!-- until here -->)"
    PAGE.write_text(re.sub(block, rf"\g<1>\n{tables(found)}\n", text, count=1, flags=re.DOTALL), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
