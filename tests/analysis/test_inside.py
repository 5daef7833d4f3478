import csv
import io
import json

import pytest
import torch
from torch.nn import functional as F

from s6mod.analysis.inside import delta_similarity, gradients, study_inside
from s6mod.analysis.opened import open_run
from s6mod.errors import ConfigError


def test_similarity_of_delta_is_the_mean_over_pairs_of_samples():
    delta, labels = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3
    labels[-1] = 3  # one sample alone has no other of its class
    found = delta_similarity(delta, labels, 5)
    for i in range(5):
        for j in range(5):
            pairs = [(m, n) for m in range(9) for n in range(9) if m != n and (labels[m], labels[n]) == (i, j)]
            if not pairs:
                assert found[i, j].isnan()
                continue
            cosines = [F.cosine_similarity(delta[m].flatten(), delta[n].flatten(), dim=0) for m, n in pairs]
            assert found[i, j].item() == pytest.approx(torch.stack(cosines).mean().item(), abs=1e-5)


def test_shares_of_the_gradient_add_up_and_a_term_without_weight_has_none(runs):
    terms = {term.name: term for term in gradients(open_run(runs["er+s6mod"], "cpu"), batches=2)}
    assert terms.keys() == {"ce", "branch/dr", "branch/diff", "branch/cont", "branch/z"}
    assert sum(term.share for term in terms.values()) == pytest.approx(1)
    assert terms["branch/cont"].length == 0  # beta = 0
    assert terms["branch/diff"].length > 0
    assert terms["ce"].cosine == pytest.approx(1)


def test_the_study_shows_what_was_recorded(runs, tmp_path, call):
    code, _, err = call("inside", runs["er+s6mod"], "--to", tmp_path, "--device", "cpu")
    assert code == 0, err
    study = json.loads((tmp_path / "study.json").read_text())
    figures = {figure["name"]: figure for figure in study["figures"]}
    assert figures.keys() == {"routing", "load", "classes", "losses"}
    records = [json.loads(line) for line in (runs["er+s6mod"] / "records.jsonl").read_text().splitlines()]
    last = [record for record in records if record["kind"] == "step"][-1]
    rows = [row for row in csv.DictReader(io.StringIO(figures["routing"]["csv"])) if int(row["step"]) == last["step"]]
    seen = [c for c, known in enumerate(last["figures"]["seen"]) if known]
    assert {row["class"]: float(row["N_k"]) for row in rows if row["N_k"]} == {
        str(c): last["figures"]["patterns"][c] for c in seen
    }
    assert len(seen) == 10
    [load] = [r for r in csv.DictReader(io.StringIO(figures["load"]["csv"])) if int(r["step"]) == last["step"]]
    assert [float(load[f"load_{i}"]) for i in (1, 2, 3)] == last["figures"]["pattern_load"]


def test_a_run_without_the_branch_is_refused(runs):
    with pytest.raises(ConfigError, match="a run with S6MOD"):
        study_inside(runs["er"], "cpu")
