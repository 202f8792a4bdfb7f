import json

import pandas as pd
import pytest
from report.conftest import findings
from report.reader import Reader

from xaibench.report import write_report
from xaibench.report.page import content as module
from xaibench.report.page.content import ALL_CELLS, method_pairs
from xaibench.scores.leaderboards import boards, overall_comparisons


@pytest.fixture(scope="module")
def found(few_cells_run):
    run, summary, pairs = findings(few_cells_run)
    return run, pairs, overall_comparisons(boards(run, summary, pairs))


def rows_of(run, made, first, second):
    """Cell and metric to difference, interval and p-value."""
    order = list(run.explainers)
    flat = made["pairs"][f"{order.index(first)} {order.index(second)}"]
    return {tuple(flat[i : i + 2]): flat[i + 2 : i + 6] for i in range(0, len(flat), 6)}


def test_a_pair_has_every_cell_and_the_difference_over_all_cells(found):
    run, pairs, overall = found
    made = method_pairs(run, pairs, overall, "lrp", [])
    rows = rows_of(run, made, "lime", "lrp")
    mine = pairs[(pairs["first"] == "lime") & (pairs["second"] == "lrp")]
    assert len(rows) == len(mine) + len(run.metrics)
    metrics = list(run.metrics)
    for row in mine.to_dict("records"):
        cell = {key: row[key] for key in ("subset", "variant", "model")}
        key = (made["cells"].index(cell), metrics.index(row["metric"]))
        assert rows[key] == pytest.approx([row[name] for name in ("difference", "low", "high", "p_holm")], rel=1e-5)
    for metric, name in enumerate(metrics):
        differences = mine["difference"][mine["metric"] == name]
        difference, low, high, p = rows[ALL_CELLS, metric]
        assert difference == pytest.approx(differences.mean(), rel=1e-5)
        assert low < difference < high
        assert 0 <= p <= 1


def test_a_method_that_lacks_a_cell_is_compared_over_the_cells_that_both_have(found):
    run, pairs, overall = found
    both = overall[(overall["first"] == "guided_gradcam") & (overall["second"] == "lrp")].set_index("metric")
    cells = pairs[(pairs["first"] == "guided_gradcam") & (pairs["second"] == "lrp")]
    assert 0 < len(cells) < 2 * len(run.scored_cells)
    for metric, rows in cells.groupby("metric", observed=True):
        assert both.loc[metric, "difference"] == pytest.approx(rows["difference"].mean())


def test_each_pair_is_compared_once_over_all_cells(found):
    run, _, overall = found
    assert set(overall["metric"]) == set(run.leading)
    assert not overall.duplicated(["metric", "first", "second"]).any()


def test_of_too_many_pairs_those_of_one_method_are_on_the_page(found, monkeypatch):
    run, pairs, overall = found
    whole = method_pairs(run, pairs, overall, "lrp", ["lrp"])
    assert sum(map(len, whole["pairs"].values())) == 6 * (len(pairs) + len(overall))
    monkeypatch.setattr(module, "MAX_COMPARISONS", 10)
    few = method_pairs(run, pairs, overall, "lrp", ["lrp"])
    place = str(list(run.explainers).index("lrp"))
    assert not few["whole"]
    assert all(place in key.split() for key in few["pairs"])
    assert method_pairs(run, pairs, overall, "", []) is None


def test_the_users_own_method_is_marked_and_its_parameters_are_shown(small_run):
    parts = json.loads((small_run / "descriptions.json").read_text())
    parts["explainers"]["lime"] |= {"own": True, "parameters": {"alpha": 0.01, "seed": 0, "names": ["a"], "top": None}}
    (small_run / "descriptions.json").write_text(json.dumps(parts))
    (small_run / "suite.toml").write_text('name = "s"\n[explainers]\nlime = { alpha = 0.01 }\n')
    page = write_report(small_run).read_text()
    assert "LIME yours" in Reader(page).words
    assert '"leader":"lime"' in page  # whose failures the browser of samples shows first
    assert page.count('class="is-own"') >= 3
    assert '<code class="stated">alpha = 0.01</code>, <code>seed = 0</code>, <code>names = [&#34;a&#34;]</code>' in page
    assert "<code>top = none</code>" in page
    assert pd.read_csv(small_run / "tables" / "methods.csv")["Method"].tolist().count("LIME") == 1
