import json
from dataclasses import replace

import pandas as pd
import pytest
from report.conftest import findings
from report.reader import Reader

from xaibench.report import write_report
from xaibench.report.page import pair_comparisons as module
from xaibench.report.page.pair_comparisons import method_pairs


@pytest.fixture(scope="module")
def found(few_cells_run):
    run, _, pairs = findings(few_cells_run)
    return run, pairs


def test_one_method_stands_beside_all_others_in_each_cell(found):
    run, pairs = found
    made = method_pairs(run, pairs, "lrp", [])
    assert list(made.cells) == ["LIN · WHITE · LLR", "LIN · WHITE · MLP", "LIN · CORR · CNN", "RIGID · CORR · CNN"]
    beside = made.cells["LIN · WHITE · MLP"]
    assert list(beside) == [name for name in run.explainers if name not in ("lrp", "guided_gradcam")]
    cell = pairs[(pairs["subset"] == "lin") & (pairs["model"] == "mlp") & (pairs["metric"] == "emd_perf")]
    for name, comparisons in beside.items():
        one = comparisons["emd_perf"]
        row = cell[(cell["first"].isin([name, "lrp"])) & (cell["second"].isin([name, "lrp"]))].iloc[0]
        sign = 1 if row["first"] == "lrp" else -1
        assert one.difference == sign * row["difference"]
        assert (one.low, one.high) == tuple(sorted(sign * row[["low", "high"]]))
        told = "better" if one.difference > 0 else "worse"
        assert one.verdict == (told if row["p_holm"] < 0.05 else "not told apart")
    assert {one["emd_perf"].verdict for one in beside.values()} > {"better"}


def test_where_lower_is_better_a_lower_score_is_better(found):
    run, pairs = found
    flipped = {name: type(part)(name, part.label, higher_is_better=False) for name, part in run.metrics.items()}
    plain = method_pairs(run, pairs, "lrp", []).cells["LIN · WHITE · MLP"]
    turned = method_pairs(replace(run, metrics=flipped), pairs, "lrp", []).cells["LIN · WHITE · MLP"]
    other = {"better": "worse", "worse": "better"}
    for name, comparisons in plain.items():
        verdict = comparisons["emd_perf"].verdict
        assert turned[name]["emd_perf"].verdict == other.get(verdict, verdict)


def test_of_too_many_pairs_those_of_one_method_are_on_the_page(found, monkeypatch):
    run, pairs = found
    whole = method_pairs(run, pairs, "lrp", ["lrp"])
    assert sum(map(len, whole.data["pairs"].values())) == 6 * len(pairs)
    monkeypatch.setattr(module, "MAX_COMPARISONS", 10)
    few = method_pairs(run, pairs, "lrp", ["lrp"])
    place = str(list(run.explainers).index("lrp"))
    assert not few.whole
    assert all(place in key.split() for key in few.data["pairs"])
    assert method_pairs(run, pairs, "", []) is None


def test_the_users_own_method_is_marked_and_its_parameters_are_shown(small_run):
    parts = json.loads((small_run / "parts.json").read_text())
    parts["explainers"]["lime"] |= {"own": True, "parameters": {"alpha": 0.01, "seed": 0, "names": ["a"], "top": None}}
    (small_run / "parts.json").write_text(json.dumps(parts))
    (small_run / "suite.toml").write_text('name = "s"\n[explainers]\nlime = { alpha = 0.01 }\n')
    page = write_report(small_run).read_text()
    words = Reader(page).words
    assert "LIME yours beside each other method, cell by cell" in words
    assert '"leader":"lime"' in page  # whose failures the browser of samples shows first
    assert page.count('class="is-own"') >= 3
    assert '<code class="stated">alpha = 0.01</code>, <code>seed = 0</code>, <code>names = [&#34;a&#34;]</code>' in page
    assert "<code>top = none</code>" in page
    assert pd.read_csv(small_run / "tables" / "methods.csv")["Method"].tolist().count("LIME") == 1
