"""``python -m xaibench``: the command line."""

from xaibench.cli import main

main()
