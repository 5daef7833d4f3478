"""A learner on the Hugging Face Hub, without a network: what goes up is caught, what comes down is there."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from learners import batch, small
from s6mod import Learner
from s6mod.errors import CheckpointError

hub = pytest.importorskip("huggingface_hub")
from huggingface_hub import ModelCard, hub_mixin  # noqa: E402

from s6mod.interfaces.hub import HubLearner  # noqa: E402

pytestmark = pytest.mark.extras


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a test asked the network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)


@pytest.fixture
def learner():
    learner = small("er", num_classes=None)
    for position in range(3):
        x, y = batch(position, (0, 1))
        learner.learn(x, [("cup", "a_pen|")[label] for label in y.tolist()])
    return learner


def images():
    return batch(9, (0, 1), size=6)[0].numpy()


def test_saved_and_opened_it_predicts_and_goes_on_to_the_bit(learner, tmp_path):
    HubLearner(learner).save_pretrained(tmp_path)
    again = HubLearner.from_pretrained(tmp_path).learner
    for one in (learner, again):
        one.learn(images()[:2], ["cup", "key"])
    assert np.array_equal(again.predict_proba(images()), learner.predict_proba(images()))


def test_a_learner_with_a_network_of_ones_own_is_opened_with_it(tmp_path):
    network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU())
    learner = Learner({"name": "er", "memory_batch": 4}, network=network, memory_size=12)
    learner.learn(images(), ["cup", "pen"] * 3)
    HubLearner(learner).save_pretrained(tmp_path)
    again = HubLearner.from_pretrained(tmp_path, network=network).learner
    assert np.array_equal(again.predict_proba(images()), learner.predict_proba(images()))
    with pytest.raises(CheckpointError, match="expected the Sequential that the learner"):
        HubLearner.from_pretrained(tmp_path)


def test_the_files_are_safetensors_json_and_the_card(learner, tmp_path):
    HubLearner(learner).save_pretrained(tmp_path)
    (tensors,) = tmp_path.glob("state-*.safetensors")
    assert {file.name for file in tmp_path.iterdir()} == {"state.json", "config.json", "README.md", tensors.name}
    assert json.loads((tmp_path / "config.json").read_text()) == learner.config.plain()


def test_the_card_says_what_it_is_and_that_it_holds_images(learner, tmp_path):
    HubLearner(learner).save_pretrained(tmp_path)
    card = ModelCard.load(tmp_path / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("s6mod", "image-classification")
    assert "# s6mod: er\n" in card.text
    assert "| classes | cup, a\\_pen\\| |" in card.text  # a name is no markup
    assert "**It holds 6 images of its stream in its replay memory.**" in card.text
    assert "Accuracy" not in card.text


def test_the_card_of_a_run_has_its_accuracies_beside_its_controls(call, tmp_path):
    tiny = ["--set", "method.network.width=2", "--set", "stream={tasks: 2, samples_per_task: 20}", "--quiet"]
    folders = []
    for branch in ("none", "confidence"):
        code, _, said = call(
            "train", "--method", "er", "--data", "digits", "--branch", branch, *tiny, "--out", tmp_path / branch
        )
        assert code == 0, said
        folders += [path.parent for path in (tmp_path / branch).rglob("result.json")]
    text = HubLearner.of_run(folders[0], folders[1]).generate_model_card().text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| er")]
    assert [row[0] for row in rows] == ["| er/digits/200", "| er+confidence/digits/200"]
    assert all(len(row) == 5 for row in rows)  # run, seed, mean, two tasks
    mean, *tasks = (float(share.strip(" |")) for share in rows[0][2:])
    assert mean == pytest.approx(sum(tasks) / 2, abs=0.06)
    assert "Data: digits." in text
    text = HubLearner.of_run(folders[1]).generate_model_card().text
    assert "| method | er |\n| branch | confidence |" in text


class Hub:
    """Takes what is uploaded, as the library's own client would."""

    def __init__(self, shelf):
        self.shelf = shelf

    def __call__(self, token=None):
        return self

    def create_repo(self, repo_id, **_):
        return type("Repo", (), {"repo_id": repo_id})

    def upload_folder(self, *, repo_id, folder_path, **_):
        shutil.copytree(folder_path, self.shelf / repo_id)
        return f"commit of {repo_id}"


def test_pushed_and_fetched_it_is_the_same_learner(learner, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_mixin, "HfApi", Hub(tmp_path))
    HubLearner(learner).push_to_hub("me/cups")
    asked = {}

    def fetch(repo, **options):
        asked.update(options)
        return str(tmp_path / repo)

    monkeypatch.setattr("s6mod.interfaces.hub.snapshot_download", fetch)
    monkeypatch.setattr(hub_mixin, "hf_hub_download", lambda repo_id, filename, **_: str(tmp_path / repo_id / filename))
    (tmp_path / "me/cups" / "payload.pkl").write_bytes(b"never asked for")
    again = HubLearner.from_pretrained("me/cups", revision="main").learner
    assert asked["revision"] == "main"
    assert not any(Path("payload.pkl").match(pattern) for pattern in asked["allow_patterns"])
    assert np.array_equal(again.predict_proba(images()), learner.predict_proba(images()))


def test_a_changed_byte_is_noticed(learner, tmp_path):
    HubLearner(learner).save_pretrained(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="damaged"):
        HubLearner.from_pretrained(tmp_path)
