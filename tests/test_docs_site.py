"""The docs site: examples run and print what is shown, and the API pages have every public name.

``python`` fences of a page are executed in one namespace; a ``text`` fence behind one is its output. A fence with a
``title="file"`` is written to that file. ``console`` fences have ``$ xaibench ...`` and its output, run by the
installed command in its own process (a test has the folder on its path, a reader's shell has not). ``xaibench``
commands of ``sh`` fences must parse. A fence with another library as title is run if that is installed; its last
assignment must equal the assignment to that name in the ``xaibench`` fence next to it. In shown output ``...`` matches
anything, and numbers may differ by 0.02.
"""

import contextlib
import csv
import functools
import importlib
import importlib.metadata
import importlib.util
import io
import os
import pkgutil
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import yaml
from installed import installed
from typer.main import get_command

import xaibench

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Pages that are executed; those of one line one after the other, in the same folder.
PAGES = [
    ["index"],
    ["first-benchmark"],
    ["tutorials/score-your-own-maps"],
    ["tutorials/benchmark-a-new-explainer", "tutorials/read-the-report"],
    ["tutorials/add-a-data-set"],
    ["own-network"],
    ["audit"],
    ["tutorials/tune-a-parameter"],
    ["coming-from"],
    ["architecture"],
    ["certified"],
    ["parts"],
    ["metrics-tested"],
]
NUMBER = re.compile(r"-?\d+\.\d+")


class Fence(NamedTuple):
    """A block of code: its language, the file that it shows, its text, its line."""

    language: str
    title: str
    text: str
    line: int


def fences(page):
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^( *)```(\w+)(.*)\n((?:.*\n)*?)\1```$", text, re.M):
        title = re.search(r'title="([^"]*)"', found[3])
        body = re.sub(rf"^{found[1]}", "", found[4], flags=re.M)
        yield Fence(found[2], title[1] if title else "", body, text.count("\n", 0, found.start()) + 1)


def agree(shown, printed):
    """Whether what came is what is shown: word for word, ``...`` for anything, numbers within 0.02."""
    shown, printed = ("\n".join(line.rstrip() for line in text.strip().splitlines()) for text in (shown, printed))
    pattern = r"(-?\d+\.\d+)".join(
        r"[\s\S]*?".join(re.escape(part) for part in piece.split("...")) for piece in NUMBER.split(shown)
    )
    found = re.fullmatch(pattern, printed)
    pairs = zip(NUMBER.findall(shown), found.groups(), strict=True) if found else ()
    return found is not None and all(abs(float(a) - float(b)) <= 0.02 for a, b in pairs)


@pytest.fixture(scope="module")
def xaibench_command(tmp_path_factory):
    """The installed command, as a reader of the pages has it: started once, when the first page asks for it."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda: stack.enter_context(installed(tmp_path_factory.mktemp("said"))))


@pytest.mark.parametrize("names", PAGES, ids=lambda names: names[0].rpartition("/")[2])
def test_pages_do_what_they_show(names, tmp_path, monkeypatch, xaibench_command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    known = set(sys.modules)
    try:
        for name in names:
            execute(DOCS / f"{name}.md", xaibench_command)
    finally:
        for name in set(sys.modules) - known:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


#: Titles of fences on other libraries, and what must be there to run them. The released XAI-TRIS code is no package.
PEERS = {
    "Captum": "captum",
    "Quantus": "quantus",
    "pytorch-grad-cam": "pytorch_grad_cam",
    "xaibenchmark": "xaibenchmark",
}
PEERS["pytorch-grad-cam and xaibench"] = "pytorch_grad_cam"


def execute(page, command):
    names, printed, theirs = {"__name__": "__main__"}, "", None
    for fence in fences(page):
        if fence.title.endswith((".py", ".toml")):
            Path(fence.title).write_text(fence.text, encoding="utf-8")
            importlib.invalidate_caches()
        elif fence.language == "python" and runs(fence):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(fence.text, f"{page}:{fence.line}", "exec"), names)
            printed = out.getvalue()
            theirs = compared(fence, names, theirs)
        elif fence.language == "text":
            assert agree(fence.text, printed), f"{page}:{fence.line} prints\n{printed}"
        elif fence.language == "console":
            commands(page, fence, command())
        elif fence.language == "sh":
            understood(fence)


def runs(fence):
    """Whether what the fence asks for is there: packages of others that are not installed, and data, are not."""
    package = PEERS.get(fence.title)
    return fence.title != "xaibench, with data" and (package is None or importlib.util.find_spec(package) is not None)


def compared(fence, names, theirs):
    """What another library's fence has assigned last; the fence of ours behind it must give the same, if it says so."""
    last = re.findall(r"^(\w+) = ", fence.text, re.M)
    if fence.title in PEERS:
        return (last[-1], names[last[-1]]) if last else None
    if fence.title == "xaibench" and theirs is not None and last[-1] == theirs[0]:
        np.testing.assert_allclose(plain(names[last[-1]]), plain(theirs[1]), atol=1e-6)
    return None


def plain(values):
    return np.asarray(values.detach() if isinstance(values, torch.Tensor) else values, dtype=np.float64)


@functools.cache
def command_line():
    return get_command(importlib.import_module("xaibench.cli").app)


def commands(page, fence, xaibench_command):
    """Run the commands of a console fence, and compare what they print."""
    for line, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", fence.text, re.M):
        name, *arguments = shlex.split(line)
        assert name == "xaibench", f"{page}:{fence.line}: {line}"
        ended = xaibench_command(*arguments, folder=Path.cwd(), XAIBENCH_CACHE=os.environ["XAIBENCH_CACHE"])
        assert ended.exit_code == 0, f"{page}:{fence.line}: {line}\n{ended.stderr}"
        assert not shown or agree(shown, ended.stdout), f"{page}:{fence.line}: {line} prints\n{ended.stdout}"


def understood(fence):
    """The commands of a shell fence name commands and options that there are."""
    for line in re.findall(r"^xaibench (.*)$", fence.text, re.M):
        name, *arguments = shlex.split(line, comments=True)
        command = command_line().commands[name]
        while hasattr(command, "commands"):
            name, *arguments = arguments
            command = command.commands[name]
        command.make_context(name, arguments)


def test_agreement_of_outputs_can_fail():
    assert agree("a 0.51 ... b\nc", "a 0.50 and\nmuch b  \nc\n")
    assert not agree("a 0.55", "a 0.50")
    assert not agree("a 0.5", "b 0.5")
    assert not agree("one", "one\ntwo")


def test_the_sections_that_the_tutorial_names_are_on_the_page():
    page = (DOCS / "tutorials" / "read-the-report.md").read_text(encoding="utf-8")
    named = re.findall(r"\*\*([^*]+)\*\*", page.partition("## ")[0])
    templates = (ROOT / "xaibench" / "report" / "page" / "templates").rglob("*.j2")
    headings = re.sub(r"{[{%].*?[%}]}", "", "\n".join(path.read_text(encoding="utf-8") for path in templates))
    assert named
    assert not [name for name in named if not re.search(rf"<h2[^>]*>{re.escape(name)}", headings)]


def test_the_table_of_the_start_page_has_the_methods_of_its_suite():
    explainers = importlib.import_module("xaibench.explainers").EXPLAINERS
    suite, _ = importlib.import_module("xaibench.runner").load_suite("xai-tris-8x8")
    infos = [explainers.resolve(part.use).info for part in suite.explainers]
    labels = {info.label for info in infos if not info.reference}
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| *[\d–]* \| \*?([^|*]+?)\*?(?: \(control[^)]*\))? \| -?\d", page, re.M)
    assert {*shown, "Guided Grad-CAM"} == labels  # which is for CNNs only, and not ranked


@pytest.fixture(scope="module")
def api():
    """The module that makes the API pages."""
    spec = importlib.util.spec_from_file_location("api", DOCS / "generate" / "api.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["api"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["api"]


#: Packages that are not part of the public Python interface: the commands have a page of their own, and what authors
#: of parts need from the foundations is in xaibench.types.
NOT_IN_PYTHON = {"cli", "compute", "core", "kernels", "runfolder"}


def public_packages():
    found = [module.name for module in pkgutil.iter_modules(xaibench.__path__) if module.ispkg]
    return [f"xaibench.{name}" for name in found if name not in NOT_IN_PYTHON]


def public_paths():
    for package in [*public_packages(), "xaibench.metrics.torchmetrics"]:
        for name in importlib.import_module(package).__all__:
            yield f"{package}.{name}"


@pytest.fixture(scope="module")
def parts(api):
    """The pages of metrics and explainers."""
    return importlib.import_module("part_pages")


@pytest.fixture(scope="module")
def api_pages(api):
    return api.pages()


def test_every_public_name_is_on_an_api_page(api, api_pages, parts):
    pages = [*api_pages.values(), *parts.pages().values()]
    shown = [name for page in pages for name in re.findall(r"^::: (\S+)", page, re.M)]
    assert len(shown) == len(set(shown))  # a name on two pages would have two addresses
    shown = set(shown)
    defined = {api._defined(path) for path in shown if path.count(".") > 1} | shown
    classes = re.findall(r"^\| `(\w+)` \|", api_pages["torchmetrics"], re.M)
    defined |= {f"xaibench.metrics.torchmetrics.{name}" for name in classes}
    assert not [path for path in public_paths() if path not in shown and api._defined(path) not in defined]
    index = api_pages["index"]
    assert not [name for name in xaibench.__all__ if f"`xb.{name}`" not in index]


def test_no_page_maker_hides_an_installed_package():
    # Each puts its folder first on sys.path: with a datasets.py there, `import datasets` found the wrong one.
    makers = {path.stem for path in (DOCS / "generate").glob("*.py")}
    assert makers.isdisjoint(importlib.metadata.packages_distributions())


def test_every_command_is_on_its_page(api_pages):
    page = api_pages["cli"]
    for name, command in command_line().commands.items():
        assert f"## `xaibench {name}`" in page
        assert all(f"`{one.opts[-1]}`" in page or f"`{one.name.upper()}`" in page for one in command.params)


def test_every_page_of_the_menu_is_there_and_every_page_is_in_it(api_pages, parts):
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    menu += list(parts.navigation().values())  # added by docs/generate/site.py

    def leaves(entry):
        if isinstance(entry, str):
            return [entry]
        return [leaf for part in (entry if isinstance(entry, list) else entry.values()) for leaf in leaves(part)]

    written = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} | {f"api/{name}.md" for name in api_pages}
    written |= {f"{name}.md" for name in parts.pages()}
    assert sorted(leaves(menu)) == sorted(written)


def test_each_command_has_examples_that_the_program_understands(api_pages):
    commands, page = sys.modules["commands"], api_pages["cli"]
    known = command_line().commands
    assert sorted(commands.EXAMPLES) == sorted(known)
    for name, text in commands.EXAMPLES.items():
        assert f"```sh{text}```" in page
        assert text.count(f"xaibench {name} ") == len(text.strip().splitlines())
        understood(Fence("sh", "", text, 0))


def test_the_menu_groups_metrics_by_call_and_explainers_by_family(parts):
    def below(overview):
        groups = [next(iter(group.items())) for group in parts.navigation()[overview]]
        return {heading: [next(iter(page.values())) for page in pages] for heading, pages in groups}

    explainers, metrics = below("explainers.md"), below("metrics.md")
    cams = ["cam", "gradcam", "gradcam-plus-plus", "layercam", "scorecam", "eigencam"]
    cams += ["hirescam", "xgradcam", "ablationcam", "finercam", "shapleycam", "refinecam", "kpcacam"]
    assert explainers["Feature maps"] == [f"explainers/{name}.md" for name in cams]
    assert {"metrics/emd.md", "metrics/iou.md", "metrics/hit.md"} <= {*metrics["Metrics with a ground truth"]}
    assert {"metrics/deletion.md", "metrics/road.md"} <= {*metrics["Metrics that call the model"]}


def test_api_pages_are_grouped_by_kind(api_pages):
    def below(page, level):
        parts = re.split(rf"^{'#' * level} (.+)$", api_pages[page], flags=re.M)[1:]
        return {
            head: re.findall(r"^::: \S+\.(\w+)$", text, re.M) for head, text in zip(*[iter(parts)] * 2, strict=True)
        }

    explainers = below("explainers", 2)
    assert {"explain", "build"} <= {*explainers["Functions"]}
    assert all(name.endswith("Error") for name in explainers["Errors"])
    assert {"agreement", "chance_level", "shapley_error"} <= {*below("metrics", 2)["Functions"]}
    assert "OwnFolder" in below("data", 3)["Classes"]  # of the last module of the page


@pytest.fixture(scope="module")
def start():
    """The module that makes the home page."""
    spec = importlib.util.spec_from_file_location("start", DOCS / "generate" / "start.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_start_page_is_of_the_suite_as_it_is_now(start):
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    made = re.search(r"<!-- made of: (.*) -->", page)
    again = "run xaibench run xai-tris-8x8 && python docs/generate/start.py runs/xai-tris-8x8"
    assert made, again
    assert made[1] == start.made_of("xai-tris-8x8"), again
    assert re.search(r"^Run on \d+ \w+ \d{4} with xaibench \S+", page, re.M)


def test_every_mean_of_the_start_page_has_an_interval():
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| *[\d–]* \| .* \| (-?\d\.\d{3}) \((\S+) to (\S+)\) \| -?\d\.\d{3} \(", page, re.M)
    assert len(rows) > 15
    assert all(float(low) - 0.005 <= float(mean) <= float(high) + 0.005 for mean, low, high in rows)


def test_the_message_of_the_start_page_follows_from_the_published_means():
    """The published means have two decimals, so the share is between that without and that with ties."""
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    share = int(re.search(r"scores higher than (\d+) % of the explanations", page)[1])
    with (DOCS / "tables" / "findings-xai-tris-8x8-emd_perf.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    means = {row[0]: row for row in rows}
    cells = [at for at, name in enumerate(head) if " CORR " in name]
    methods = [row for name, row in means.items() if "(control)" not in name]
    pairs = [(row[at], means["Laplace (control)"][at]) for row in methods for at in cells if row[at] != "–"]
    assert f"{len(pairs)} comparisons of {len(methods)} explainers" in page
    below = sum(float(score) < float(laplace) for score, laplace in pairs)
    ties = sum(score == laplace for score, laplace in pairs)
    assert 100 * below / len(pairs) - 0.5 <= share <= 100 * (below + ties) / len(pairs) + 0.5
