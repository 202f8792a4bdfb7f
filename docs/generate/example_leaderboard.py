"""Write the leaderboard site of the library's own results, which are in examples/leaderboard/results."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).parents[2] / "examples" / "leaderboard" / "results"


def write_example(out: Path) -> None:
    """Write the site to the new folder ``out``."""
    from xaibench.leaderboard import write_site

    write_site(RESULTS, out, strict=True, title="Explainers of xaibench", first="xai-tris-8x8")


if __name__ == "__main__":
    import sys

    write_example(Path(sys.argv[1]))
