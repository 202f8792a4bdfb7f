"""``audit.json``: every p-value can be computed from it, by code that shares nothing with the package."""

import json

import numpy as np
import pytest
from scipy.stats import t

EXACT = {"rel": 1e-9, "abs": 1e-12}


@pytest.fixture(scope="module")
def audit_json(written):
    return json.loads((written / "audit.json").read_text())


def better_and_worse(differences, groups):
    """One-sided p-values of a mean, with groups as clusters: jackknife, Bell and McCaffrey's degrees of freedom, and
    Hall's transform for skewed scores.
    """
    clusters = [differences[groups == one] for one in np.unique(groups)]
    n, share = len(clusters), np.array([len(one) for one in clusters]) / len(differences)
    means, mean = np.array([one.mean() for one in clusters]), differences.mean()
    if mean == 0:
        return 1.0, 1.0
    centering = np.eye(n) - np.outer(np.ones(n), share)
    form = centering.T @ np.diag((share / (1 - share)) ** 2) @ centering
    parts = share * (means - mean)
    variance = (n - 1) / n * ((parts / (1 - share)) ** 2).sum()
    df = min(n - 1, 1 + np.trace(form) ** 2 / np.trace(form @ form))
    if variance < 1e-20:
        both = 2.0 ** (1 - n)
    else:
        skewness = (parts**3).sum() / (parts**2).sum() ** 1.5 * np.sqrt(n * (n - 1)) / (n - 2)
        of_normal_scores = 6 * (n - 1) / ((n - 2) * (n + 1) * (n + 3))
        assumed = max(-skewness * np.sign(mean), np.sqrt(max(skewness**2 - 3 * of_normal_scores, 0)))
        ratio = abs(mean) / np.sqrt(variance)
        hall = ratio - assumed / 3 * ratio**2 + assumed**2 / 27 * ratio**3 - assumed / 6
        both = 2 * t.sf(np.clip(hall, 0, ratio), df)
    return (both / 2, 1 - both / 2) if mean > 0 else (1 - both / 2, both / 2)


def test_p_values_of_all_comparisons(audit_json):
    asked = [question for question in audit_json["questions"] if not question["skipped"]]
    compared = 0
    for verdict in audit_json["verdicts"]:
        for comparison in verdict["comparisons"]:
            about, control = comparison["about"], comparison["control"]
            questions = [question for question in asked if about in (question["truth"], question["key"])]
            scores = np.concatenate([question["scores"][verdict["explainer"]] for question in questions])
            if control != "chance":
                scores = scores - np.concatenate([question["scores"][control] for question in questions])
            groups = np.concatenate([question["groups"] for question in questions])
            better, worse = better_and_worse(scores, groups)
            assert comparison["p"] == pytest.approx(better, **EXACT)
            assert comparison["p_worse"] == pytest.approx(worse, **EXACT)
            assert comparison["difference"] == pytest.approx(scores.mean(), **EXACT)
            compared += 1
    assert compared > 40


def test_corrected_p_values_of_the_verdicts(audit_json):
    largest = [max(comparison["p"] for comparison in verdict["comparisons"]) for verdict in audit_json["verdicts"]]
    order = sorted(range(len(largest)), key=largest.__getitem__)
    corrected = 0.0
    for rank, index in enumerate(order):
        corrected = max(corrected, min(1.0, largest[index] * (len(order) - rank)))
        assert audit_json["verdicts"][index]["p"] == pytest.approx(corrected, **EXACT)


def test_p_value_of_the_network(audit_json):
    answers = np.array([image["output"] for image in audit_json["images"]])
    labels = np.array([image["label"] for image in audit_json["images"]])
    assert all(image["answers"] == [image["output"]] for image in audit_json["images"])
    rng, test = np.random.default_rng(audit_json["record"]["settings"]["seed"]), audit_json["network_test"]
    shuffled = np.array([(answers == labels[rng.permutation(len(labels))]).mean() for _ in range(9999)])
    right = (answers == labels).mean()
    assert test["value"] == right
    assert test["expected"] == pytest.approx(shuffled.mean())
    assert test["p"] == (1 + (shuffled >= right - 1e-12).sum()) / 10_000
    assert test["passed"] == (test["p"] <= test["level"])


def test_p_value_of_the_network_without_labels(unlabeled_audit):
    test = json.loads(json.dumps(unlabeled_audit.to_dict()))["network_test"]
    assert test["by"] == "shuffled weights"
    as_good = sum(copy >= test["value"] - 1e-12 for copy in test["copies"])
    assert test["p"] == (1 + as_good) / (1 + len(test["copies"]))
    assert len(test["copies"]) == 49
    assert test["expected"] == pytest.approx(np.mean(test["copies"]))


def test_p_values_of_the_sanity_checks(audit_json):
    tested = 0
    for check in audit_json["sanity_checks"]:
        failed = []
        for label, mean in check["means"].items():
            is_beyond = mean is not None and check["limit"] is not None
            is_beyond = is_beyond and (mean >= check["limit"] if check["fails"] == "above" else mean <= check["limit"])
            if label in check["yardstick"]:
                more = np.array(check["regions"][label], float) - np.array(check["yardstick"][label], float)
                more = more[~np.isnan(more)] * (1 if check["fails"] == "above" else -1) - 0.1
                if len(more) < 5:
                    assert check["p"][label] is None
                    continue  # it does not fail
                signs = 1 - 2 * (np.arange(2 ** len(more))[:, None] >> np.arange(len(more)) & 1)
                p = np.mean(signs @ more > more.sum() - 1e-9)
                assert check["p"][label] == pytest.approx(p)
                is_beyond = is_beyond and p <= 0.05
                tested += 1
            if is_beyond:
                failed.append(label)
        assert check["failed"] == failed
    assert tested >= 4


def test_means_of_scores_and_similarities(audit_json):
    lists = [(check["values"], check["means"]) for check in audit_json["sanity_checks"]]
    lists += [(question["scores"], question["means"]) for question in audit_json["questions"]]
    for scores, means in lists:
        for label, values in scores.items():
            known = [value for value in values if value is not None]
            assert means[label] == (pytest.approx(np.mean(known), **EXACT) if known else None)


def test_samples_name_their_images(audit_json):
    groups = {image["id"]: image["group"] for image in audit_json["images"]}
    for question in audit_json["questions"]:
        assert [groups[image] for image in question["images"]] == question["groups"]
    assert len(groups) == 24
    regions = audit_json["decisive_regions"]
    assert {region["place"] for region in regions} == {"top left"}
    assert {region["class"] for region in regions} == {"class 0", "class 1"}
    assert regions[0]["window"] == [[0, 4], [0, 4]]
