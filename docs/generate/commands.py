"""Generate the page of the command line: every command with examples, arguments and options."""

from __future__ import annotations

from typing import Any

HEAD = """# Command line

Look up a command, its arguments and options. Exit codes: 0 success; 1 failed jobs or missing data; 2 bad arguments.
"""

#: Examples of each command; tests check each line against the program.
EXAMPLES = {
    "audit": """
xaibench audit mine.py:network --images scans --classes normal,nodule        # verdicts, and an evidence sheet
xaibench audit torchvision:resnet18 --images scans --no-labels               # class folders that it does not know
xaibench audit mine.py:network --images scans --masks lesions --train        # with masks, and a planted trigger
xaibench audit net.onnx --images table.parquet --output sigmoid --samples 60   # independent labels, more images
""",
    "compare": """
xaibench compare runs/before runs/after                 # significant changes
xaibench compare runs/a runs/b runs/c --out moved.csv    # each compared with the first; all rows in a file
""",
    "leaderboard": """
xaibench leaderboard results --out site    # write the static site of a results repository
xaibench leaderboard hf://ann/results      # of a repository on the Hub
xaibench leaderboard results --strict      # stop at a result that cannot be shown
""",
    "list": """
xaibench list explainers                   # names for suites, calls and options
xaibench list datasets --root ~/data       # which annotated sets are ready
""",
    "prepare": """
xaibench prepare pet --root ~/data --download   # fetch, build and count
xaibench prepare tumor --root ~/data            # how to get it by hand, or its content
""",
    "push": """
xaibench push xai-tris/lin-white-8x8 ann/tetrominoes --seed 3         # list what would be uploaded
xaibench push runs/xai-tris-8x8 ann/xai-tris-scores --yes
""",
    "report": """
xaibench report runs/xai-tris-8x8   # write tables, figures and page again; nothing is computed
""",
    "networks": """
xaibench networks list                                  # published networks
xaibench networks check xai-tris-8x8                    # train them again and compare
""",
    "results": """
xaibench results add runs/mine --out results             # a result for each method of a run
xaibench results check results                           # valid, and exactly the rows of their suites; runs nothing
xaibench results verify results --new --record           # run the library methods again; list them in verified.csv
xaibench results verify results/squared --explainers mine.py:squared   # EXECUTES mine.py
""",
    "run": """
xaibench run xai-tris-8x8 --quick                              # a small form, in a minute
xaibench run xai-tris-8x8 --plan                               # estimate the cost before it starts
xaibench run saliency-bench --root ~/data --datasets pet,pascal --model resnet50
xaibench run my-suite.toml --out runs/mine --workers 8         # your suite, with your methods
xaibench run xai-tris-8x8 --train                              # train every network, also the published ones
xaibench run xai-tris-64x64 --engine ray --address auto --out /shared/run
""",
    "score": """
xaibench score maps.npz --dataset pet --root ~/data --template   # a file with the samples' ids, to fill in
xaibench score maps.npz --dataset pet --root ~/data              # scores next to the controls
xaibench score maps.npz --dataset xai-tris/lin-corr-8x8 --metrics emd_perf,topk_precision --out scores.csv
""",
    "show": """
xaibench show pet --root ~/data --out pets.png            # images, masks and classes
xaibench show folder:shapes --out shapes.png --count 12   # your folder
""",
}


def page() -> str:
    """Return the page in Markdown."""
    from typer.main import get_command

    from xaibench.cli import app

    group: Any = get_command(app)
    return HEAD + "\n".join(_command(name, command) for name, command in sorted(group.commands.items()))


def _command(name: str, command: Any) -> str:
    if hasattr(command, "commands"):
        inside = sorted(command.commands.items())
        head = f"## `xaibench {name}`\n\n{command.help}\n\n```sh{EXAMPLES[name]}```\n\n"
        return head + "\n".join(_command(f"{name} {one}", own).replace("## ", "### ", 1) for one, own in inside)
    given = [one.name.upper() for one in command.params if one.param_type_name == "argument"]
    lines = [f"## `xaibench {name}`", "", command.help, "", f"    xaibench {' '.join([name, *given])} [OPTIONS]", ""]
    if name in EXAMPLES:
        lines += [f"```sh{EXAMPLES[name]}```", ""]
    rows = [_parameter(one) for one in command.params if one.name != "help"]
    return "\n".join([*lines, "| argument | meaning |", "|---|---|", *rows, ""])


def _parameter(one: Any) -> str:
    names = one.opts if one.param_type_name == "option" else [one.name.upper()]
    shown = one.show_default and not one.required and one.default not in (None, False)
    default = f" Default: `{getattr(one.default, 'value', one.default)}`." if shown else ""
    return f"| {', '.join(f'`{name}`' for name in names)} | {one.help}{default} |"
