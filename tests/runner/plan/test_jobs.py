"""From a suite to jobs: which there are, in what order, and what changes their keys."""

import itertools

import pytest
from refusals import refused

from xaibench.registry.info import ExplainerInfo
from xaibench.registry.parameters import Frozen
from xaibench.registry.table import UnknownNameError
from xaibench.runner.parts import MetricPart
from xaibench.runner.plan import plan as plan_module
from xaibench.runner.plan.jobs import STAGES
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.published_scores import identity
from xaibench.runner.stages.collect import _describe_parts
from xaibench.runner.suites.parsing import load_suite, parse_suite
from xaibench.runner.suites.schema import SuiteError

TABLES = {
    "name": "s",
    "title": "S",
    "training": {"seeds": [0, 1, 2], "stack": 2},
    "cells": [{"datasets": ["xai-tris/lin-white-8x8"], "models": ["llr", "cnn"]}],
    "explainers": {"saliency": {}, "lime": {"n_samples": 10}, "guided_gradcam": {}, "uniform": {}},
    "metrics": {"emd_perf": {}, "topk_precision": {}},
}


#: A network that reads some pixels, for metrics of what it uses.
BLIND = {"datasets": ["xai-tris/lin-white-8x8"], "models": ["blind:cnn"]}


def plan(**changes):
    return make_plan(parse_suite(TABLES | changes))


def measured(plan):
    return [each for job in plan.jobs if job.stage == "score" for each in job.measurements]


def keys(plan, stage):
    if stage == "score":
        return {each.key for each in measured(plan)}
    return {key for job in plan.jobs if job.stage == stage for key in job.results}


def test_every_job_stands_once_and_after_those_it_needs():
    jobs = make_plan(load_suite("xai-tris-8x8")[0]).jobs
    assert len({job.key for job in jobs}) == len(jobs)
    seen = set()
    for job in jobs:
        assert set(job.needs) <= seen
        seen.add(job)


def test_the_8x8_suite_has_the_issued_jobs():
    made = make_plan(load_suite("xai-tris-8x8")[0])
    jobs = made.jobs
    count = {stage: sum(job.stage == stage for job in jobs) for stage in STAGES}
    # 18 cells with a training on each of six data sets; 15 methods and a reference per training, Guided Grad-CAM for
    # 8 CNNs, 5 controls per data set.
    maps = 6 * (18 * 16 + 8 + 8 * 5)
    assert count == {"data": 6 * 8, "train": 6 * 18, "explain": maps, "score": 264}
    assert len(measured(made)) == 4 * maps


def test_metrics_of_the_network_score_the_sigmoid_that_a_suite_explains():
    metrics = {"insertion": {}, "deletion": {"output": "logit"}, "emd_perf": {}}

    def outputs(**explaining):
        scores = measured(plan(metrics=metrics, explaining=explaining))
        return {job.metric.name: job.metric.parameters.get("output") for job in scores}

    assert outputs(output="sigmoid") == {"insertion": "sigmoid", "deletion": "logit", "emd_perf": None}
    assert outputs(output="logit") == outputs() == {"insertion": None, "deletion": "logit", "emd_perf": None}


def test_scores_of_constant_maps_are_part_of_the_key(monkeypatch):
    metrics = {"emd_perf": {}, "emd_skill": {}, "precision": {}, "insertion": {}, "complexity": {}}

    def keys():
        scores = measured(plan(metrics=metrics))
        return {name: {job.key for job in scores if job.metric.name == name} for name in metrics}

    before = keys()
    monkeypatch.setattr(plan_module, "CONSTANT_MAP_REVISION", 2)
    after = keys()
    changed = {name for name in metrics if not before[name] & after[name]}
    assert changed == {"emd_perf", "emd_skill", "precision"}
    assert all(before[name] == after[name] for name in metrics if name not in changed)


def test_a_skill_and_the_scores_that_it_follows_from_are_one_job():
    jobs = [
        job for job in plan(metrics={"emd_skill": {}, "emd_perf": {}, "iou_skill": {}}).jobs if job.stage == "score"
    ]
    together = [tuple(each.metric.name for each in job.measurements) for job in jobs]
    assert set(together) == {("emd_skill", "emd_perf"), ("iou_skill",)}
    skills = [each for job in jobs for each in job.measurements if each.raw]
    assert all(each.explain == each.raw.explain for each in skills)
    assert {each.raw.metric for each in skills} == {
        MetricPart("emd_perf", "emd_perf"),
        MetricPart("iou", "iou", Frozen({"threshold": "area"})),
    }


def test_few_scores_are_a_job_each_and_many_share_jobs():
    def sizes(samples):
        explainers = {f"lime-{i}": {"use": "lime", "n_samples": i + 4} for i in range(samples)}
        made = plan(explainers=explainers, metrics={"iou": {}, "hit": {}})
        return [len(job.measurements) for job in made.jobs if job.stage == "score"]

    assert set(sizes(4)) == {1}
    assert len(sizes(200)) <= 162
    assert sum(sizes(200)) == 800


def test_scores_that_share_model_outputs_are_one_job_per_network():
    jobs = [job for job in plan(metrics={"idsds": {}, "hit": {}}).jobs if job.stage == "score"]
    shared = [job for job in jobs if job.measurements[0].metric.name == "idsds"]
    assert [len(job.explains) for job in shared] == [3, 4]
    assert all(job.uses_device for job in shared)
    assert not any(job.uses_device for job in jobs if job not in shared)


@pytest.mark.parametrize(
    ("protocol", "metrics", "behind"),
    [
        ("area", {"iou": {}, "iou_skill": {}}, "iou"),
        ("scaled", {"iou": {}, "at": {"use": "iou", "threshold": "area"}, "iou_skill": {}}, "at"),
        ("published", {"at": {"use": "iou", "threshold": "area"}, "iou": {}, "iou_skill": {}}, "at"),
        ("scaled", {"iou": {}, "iou_skill": {}}, None),
    ],
)
def test_the_skill_of_iou_is_of_the_suite_s_cut_at_the_area(protocol, metrics, behind):
    planned = plan(metrics=metrics, explaining={"protocol": protocol})
    skills = {each.raw.metric for each in measured(planned) if each.raw}
    (raw,) = skills
    assert dict(raw.parameters) == ({} if behind == "iou" else {"threshold": "area"})
    assert (raw in planned.suite.metrics) == (behind is not None)
    described = _describe_parts(planned).metrics
    assert described["iou_skill"].skill_of == (behind or "")
    assert described["iou"].label == "IoU"
    assert "at" not in metrics or described["at"].label == "IoU at the mask’s area"


def test_a_metric_under_a_name_of_the_suite_is_shown_with_its_parameters():
    metrics = {"iou": {}, "half": {"use": "iou", "threshold": 0.5}, "again": {"use": "hit"}}
    described = _describe_parts(plan(metrics=metrics)).metrics
    assert [described[name].label for name in metrics] == ["IoU", "IoU (threshold = 0.5)", "again"]


def test_only_scores_of_binarized_maps_depend_on_the_protocol():
    metrics = {"iou": {}, "hit": {}, "emd_perf": {}, "iou_skill": {}, "at": {"use": "iou", "threshold": "area"}}

    def keys(protocol):
        scores = measured(plan(metrics=metrics, explaining={"protocol": protocol}))
        return {name: {each.key for each in scores if each.metric.name == name} for name in metrics}

    area, scaled, published = map(keys, ("area", "scaled", "published"))
    assert len({frozenset(each["iou"]) for each in (area, scaled, published)}) == 3
    for name in ("hit", "emd_perf", "at"):
        assert area[name] == scaled[name] == published[name]


def test_a_sign_is_in_the_keys_of_the_scores_that_it_decides():
    metrics = {
        "hit": {},
        "emd_perf": {},
        "average_precision_skill": {},
        "use_auc": {},
        "sparseness": {},
        "insertion": {},
    }

    def planned(sign):
        return plan(metrics=metrics, explaining={"sign": sign}, cells=[BLIND])

    plans = [planned(sign) for sign in ("magnitude", "signed")]
    keys, names = (
        [{name: found(made, name) for name in metrics} for made in plans]
        for found in (
            lambda made, name: {each.key for each in measured(made) if each.metric.name == name},
            lambda made, name: identity(made)["metrics"][name],
        )
    )
    decided = {"hit", "emd_perf", "average_precision_skill"}
    for found in (keys, names):
        assert {name for name in metrics if found[0][name] != found[1][name]} == decided
    signs = {each.metric.name: each.sign for each in measured(plans[0])}
    assert signs["hit"] == "magnitude"
    assert signs["emd_perf"] is None, "of the magnitude anyway: the same key as before there was a choice"


def test_the_paper_suite_explains_every_training():
    jobs = make_plan(load_suite("xai-tris-8x8-paper")[0]).jobs
    networks = {job.network for job in jobs if job.stage == "explain" and job.network}
    assert len(networks) == 25 * 18
    assert sum(job.stage == "data" for job in jobs) == 25 * 8


def test_stacks_controls_and_convolutions():
    jobs = plan().jobs
    assert [job.seeds for job in jobs if job.stage == "train"] == [(0, 1), (2,)] * 2
    explained = [(job.explainer.name, str(job.network)) for job in jobs if job.stage == "explain"]
    assert explained.count(("uniform", "None")) == 1, "a control knows no network and is made once a data set"
    assert ("guided_gradcam", "cnn (seed best)") in explained
    assert ("guided_gradcam", "llr (seed best)") not in explained


def test_explaining_is_cut_into_jobs_of_so_many_samples():
    cut = plan(
        explaining={"samples": 250, "samples_per_job": 100}, explainers={"saliency": {}, "pattern_net": {}, "input": {}}
    )
    spans = [job.span for job in cut.jobs if job.stage == "explain" and job.explainer.name == "saliency"]
    assert spans == [(0, 100), (100, 200), (200, 250)] * 2
    whole = [job.span for job in cut.jobs if job.stage == "explain" and job.explainer.name != "saliency"]
    assert whole == [None] * 3, "what is fitted first, and controls, stay whole"
    scores = [job for job in cut.jobs if job.stage == "score" and job.explains[0].explainer.name == "saliency"]
    assert len(scores) == 2 * 2
    assert all(score.waits_for == score.explains[0].slices for score in scores)
    assert [part.amount for part in scores[0].waits_for] == [100, 100, 50]
    assert "samples 100 to 199" in str(scores[0].waits_for[1])


def test_more_samples_take_over_what_was_explained_of_fewer():
    few, more = (
        {
            job.key
            for job in plan(explaining={"samples": count, "samples_per_job": 100}, explainers={"saliency": {}}).jobs
            if job.stage == "explain"
        }
        for count in (200, 250)
    )
    assert few < more


def test_a_suite_that_is_not_cut_keeps_its_keys():
    small = {"samples": 50}
    assert keys(plan(explaining=small), "explain") == keys(plan(explaining=small | {"samples_per_job": 100}), "explain")


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({}, ""),
        ({"name": "other", "title": "Other"}, ""),
        ({"metrics": {"emd_perf": {"diameter": "released"}, "topk_precision": {}}}, "score"),
        ({"explainers": TABLES["explainers"] | {"lime": {"n_samples": 11}}}, "explain score"),
        ({"explaining": {"output": "logit"}}, "explain score"),
        ({"training": TABLES["training"] | {"epochs": 7}}, "train explain score"),
        ({"training": TABLES["training"] | {"lr": 1e-4}}, "train explain score"),
        ({"data": {"seeds": [1]}}, "data train explain score"),
        ({"data": {"parameters": {"alpha": 0.5}}}, "data train explain score"),
    ],
)
def test_a_change_touches_only_what_depends_on_it(changes, changed):
    before, after = plan(), plan(**changes)
    touched = [stage for stage in STAGES if keys(before, stage) != keys(after, stage)]
    assert touched == changed.split()


def test_changing_one_explainer_leaves_the_others_alone():
    before, after = plan(), plan(explainers=TABLES["explainers"] | {"lime": {"n_samples": 11}})
    lime = {job.key for job in before.jobs if job.stage == "explain" and job.explainer.name == "lime"}
    assert keys(before, "explain") - keys(after, "explain") == lime


@pytest.mark.parametrize("stack", [1, 2, 3])
def test_adding_a_seed_changes_no_key(stack):
    made = [
        plan(training={"seeds": seeds, "stack": stack}, explaining={"trainings": "all"})
        for seeds in ([0], [0, 1], [0, 1, 2])
    ]
    for before, after in itertools.pairwise(made):
        for stage in ("train", "explain", "score"):
            assert keys(before, stage) < keys(after, stage), stage


def test_how_many_train_in_one_go_changes_no_key():
    one, three = (plan(training={"seeds": [0, 1, 2], "stack": stack}) for stack in (1, 3))
    for stage in STAGES:
        assert keys(one, stage) == keys(three, stage)


def test_a_name_of_the_suites_own_decides_nothing():
    before = plan(explainers={"lime": {"n_samples": 10}})
    after = plan(explainers={"mine": {"use": "lime", "n_samples": 10}})
    assert keys(before, "score") == keys(after, "score")


def test_a_revision_changes_the_keys(monkeypatch):
    before = plan()
    monkeypatch.setattr(MetricPart, "revision", property(lambda part: "new"))
    after = plan()
    assert keys(before, "explain") == keys(after, "explain")
    assert not keys(before, "score") & keys(after, "score")


def test_a_users_part_without_info_is_revised_by_its_source(tmp_path, monkeypatch):
    import importlib

    from xaibench.registry.component import COMPONENTS

    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "users_own_explainer.py"
    found = []
    for body in ("images[:, 0]", "images[:, 0] ** 2"):
        module.write_text(f"def mine(model, images, targets):\n    return {body}\n")
        importlib.invalidate_caches()
        import sys

        sys.modules.pop("users_own_explainer", None)
        import linecache

        linecache.clearcache()
        COMPONENTS.clear()
        found.append(keys(plan(explainers={"users_own_explainer:mine": {}}), "explain"))
    assert found[0].isdisjoint(found[1])


def test_info_of_a_users_part_is_read():
    @ExplainerInfo("Mine", revision=7)
    def mine(model, images, targets):
        return images[:, 0]

    globals()["mine_for_this_test"] = mine
    import sys

    from xaibench.runner.parts import ExplainerPart

    sys.modules["plan_test_parts"] = type(sys)("plan_test_parts")
    sys.modules["plan_test_parts"].mine = mine
    assert ExplainerPart.of("plan_test_parts:mine").revision == "7"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"explainers": {"salience": {}}}, "Unknown explainer 'salience'; did you mean 'saliency'"),
        ({"metrics": {"emd-per": {}}}, "Unknown metric 'emd-per'; did you mean 'emd_perf'"),
        ({"cells": [TABLES["cells"][0] | {"datasets": ["xai-tris/lin-whit-8x8"]}]}, "'xai-tris/lin-white-8x8'"),
        ({"cells": [TABLES["cells"][0] | {"models": ["cn"]}]}, "did you mean 'cnn'"),
    ],
)
def test_unknown_parts_are_named_before_anything_runs(changes, message):
    refused(UnknownNameError, message, lambda: plan(**changes))


def test_an_unknown_training_entry_of_a_cell():
    cell = TABLES["cells"][0] | {"training": {"epoch": 3}}
    refused(SuiteError, "unknown entry 'epoch'; did you mean 'epochs'", lambda: plan(cells=[cell]))


def test_precision_is_in_the_key_and_its_default_leaves_the_old_ones():
    plain = plan()
    assert keys(plan(explaining={"precision": "own"}), "explain") == keys(plain, "explain")
    assert keys(plan(training=TABLES["training"] | {"precision": "float32"}), "train") == keys(plain, "train")
    rounded = plan(explaining={"precision": "tf32"})
    assert keys(rounded, "train") == keys(plain, "train")
    assert not keys(rounded, "explain") & keys(plain, "explain")
    assert not keys(rounded, "score") & keys(plain, "score")
    assert not keys(plan(training=TABLES["training"] | {"precision": "tf32"}), "train") & keys(plain, "train")


def test_a_budget_is_part_of_the_key():
    named = {"rise-1000": {"use": "rise", "budget": 1000}, "rise-500": {"use": "rise", "budget": 500}, "rise": {}}
    jobs = [job for job in plan(explainers=named).jobs if job.stage == "explain"]
    assert len({job.key for job in jobs}) == len(jobs)


def test_results_of_the_plain_versions_have_keys_of_their_own(monkeypatch):
    found = {stage: keys(plan(), stage) for stage in STAGES}
    monkeypatch.setenv("XAIBENCH_KERNELS", "0")
    plain = plan()
    assert found["data"] == keys(plain, "data")
    for stage in STAGES[1:]:
        assert found[stage]
        assert found[stage].isdisjoint(keys(plain, stage))
