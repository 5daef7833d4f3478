import asyncio
import io
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from s6mod import Learner
from s6mod.errors import ConfigError
from s6mod.serve.settings import Limits
from s6mod.serve.writer import Writer
from services import RULES, SIDE, batch, small, wait_until

testclient = pytest.importorskip("fastapi.testclient", exc_type=ImportError)

NPY = {"Content-Type": "application/x-npy"}


@pytest.fixture
def service(opened):
    with opened(limits=Limits(body=100_000)) as made:
        yield made


@pytest.fixture
def client(service):
    from s6mod.serve.application import application

    return testclient.TestClient(application(service), base_url="http://127.0.0.1:8000")


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def learn(client, number, **query):
    images, labels = batch(number)
    return client.post("/learn", params={"labels": json.dumps(labels)} | query, content=npy(images), headers=NPY)


def learned(service):
    wait_until(
        lambda: (
            service.journal.after(service.state.number) is None and service.shown.batches == service.state.learner.steps
        )
    )


def test_a_batch_that_is_sent_again_gets_the_first_answer(client):
    first = learn(client, 1, id="mine")
    assert (first.status_code, first.json()) == (200, {"id": "mine", "number": 2, "images": 2})
    assert learn(client, 1, id="mine").json() == first.json()
    assert learn(client, 2, id="mine").status_code == 409
    assert client.get("/status").json()["journal"]["accepted"] == 2


def test_a_label_may_come_later_for_a_prediction(client, service):
    assert client.post("/predict", content=npy(batch(1)[0]), headers=NPY).status_code == 409  # nothing was learned
    learn(client, 1)
    learned(service)
    answer = client.post("/predict?top=2", content=npy(batch(1)[0]), headers=NPY).json()
    assert answer["batches"] == 1
    first, second = answer["predictions"]
    assert {each["label"] for each in first["labels"]} == {"a", "b"}
    ids = [first["id"], second["id"]]
    told = client.post("/learn", json={"predictions": ids, "labels": ["a", "c"], "id": "later"})
    assert (told.status_code, told.json()["images"]) == (200, 2)
    learned(service)
    assert [each["label"] for each in client.get("/classes").json()["classes"]] == ["a", "b", "c"]
    assert client.post("/learn", json={"predictions": ["none"], "labels": ["a"]}).status_code == 404
    others = {"predictions": ids[::-1], "labels": ["a", "c"], "id": "later"}
    assert client.post("/learn", json=others).status_code == 409
    service.predictions._ask("DELETE FROM predictions")  # forgotten by now
    assert client.post("/learn", json={"predictions": ids, "labels": ["a", "c"], "id": "later"}).json() == told.json()


def test_files_json_and_npy_say_the_same(client, service):
    from PIL import Image

    learn(client, 1)
    learned(service)
    image = batch(1)[0][0]
    file = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(file, "PNG")
    answers = [
        client.post("/predict", content=npy(image), headers=NPY),
        client.post("/predict", json={"images": image.tolist()}),
        client.post("/predict", files={"images": ("x.png", file.getvalue())}),
        client.post("/predict", content=file.getvalue(), headers={"Content-Type": "image/png"}),
    ]
    [labels] = {json.dumps(answer.json()["predictions"][0]["labels"]) for answer in answers}
    assert json.loads(labels)[0]["label"] in "ab"


def test_snapshot_rollback_and_what_is_told_of_them(client, service):
    learn(client, 1, id="one")
    number = client.post("/snapshot").json()["number"]
    learn(client, 2, id="two")
    assert client.post("/rollback", json={"snapshot": number}).json()["snapshot"] == number
    learned(service)
    assert client.get("/learn/one").json()["state"] == "learned"
    assert client.get("/learn/two").json()["state"] == "unlearned"
    told = client.get("/snapshots").json()
    assert [each["batches"] for each in told["snapshots"]] == [0, 1]
    assert [each["why"] for each in told["rollbacks"]] == ["asked"]
    assert client.post("/rollback", json={"snapshot": 99}).status_code == 404


def test_bad_requests_are_one_sentence_and_change_nothing(client, service):
    learn(client, 1)
    learned(service)
    before = client.get("/status").json()["journal"]
    answers = [
        client.post("/learn", content=b"x" * 200_000, headers=NPY),
        client.post("/learn", content=npy(batch(1)[0]), headers=NPY),
        client.post("/learn", content=b"x", headers={"Content-Type": "text/plain"}),
        client.post("/predict?top=0", content=npy(batch(1)[0]), headers=NPY),
        client.post("/predict?top=x", content=npy(batch(1)[0]), headers=NPY),
        client.post("/learn?id=mine", json={"images": batch(1)[0].tolist(), "labels": ["a", "b"]}),
        client.post(
            "/learn", files={"images": ("x.npy", npy(batch(1)[0])), "id": ("x", b"mine")}, data={"labels": "a"}
        ),
        client.post("/predict", data={"images": "x"}, files={"images": ("x.npy", npy(batch(1)[0]))}),
        client.post("/learn", json={"images": batch(1)[0].tolist(), "labels": ["a", 1.5]}),
        client.post("/learn", json={"images": batch(1)[0].tolist(), "labels": ["a", "b", "a"]}),
        client.post("/learn", json={"images": batch(1)[0].tolist(), "labels": [1, "1"]}),
        client.post("/snapshot", json={"id": ""}),
        client.post("/rollback", json={}),
        client.get("/nothing"),
        client.post("/predict/", content=npy(batch(1)[0]), headers=NPY, follow_redirects=False),
        client.delete("/learn"),
        client.get("/status", headers={"Host": "example.org"}),
        client.post("/snapshot", headers={"Origin": "http://example.org"}),
    ]
    assert [answer.status_code for answer in answers] == [413, 400, 415, *[400] * 10, 404, 404, 405, 403, 403]
    for answer in answers:
        assert (answer.headers.get("connection") == "close") == (answer.status_code in (403, 413))  # the rest is unread
        assert answer.json()["error"].startswith("expected ")
        assert "\n" not in answer.json()["error"]
    told = [answers[place].json()["error"] for place in (-4, -3)]
    assert told == [
        "expected a path that GET /docs lists, got /predict/; check it",
        "expected POST for /learn, got DELETE; send that",
    ]
    assert answers[-3].headers["allow"] == "POST"
    assert client.get("/status").json()["journal"] == before


def ask_by_hand(service, receive, verb="POST", path="/learn", read=None, length=None):
    """The status that a client gets which does not send all, or does not read all."""
    from s6mod.serve.application import application

    sent = []

    async def send(message):
        sent.append(message)
        if read is not None and message["type"] == "http.response.body":
            await read()

    headers = [(b"host", b"127.0.0.1"), (b"content-type", NPY["Content-Type"].encode())]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    scope = {"type": "http", "method": verb, "path": path, "query_string": b"", "headers": headers}
    scope["asgi"] = {"spec_version": "2.4"}
    asyncio.run(application(service)(scope, receive, send))
    return [message["status"] for message in sent if message["type"] == "http.response.start"]


def test_a_reader_learns_nothing(opened):
    from s6mod.serve.application import application
    from s6mod.serve.service import Reader

    reader = Reader(opened.folder, None, Limits())
    client = testclient.TestClient(application(reader), base_url="http://127.0.0.1")
    answers = [client.post("/learn"), client.post("/snapshot"), client.post("/rollback", json={"snapshot": 1})]
    answers += [client.get("/learn/one"), client.get("/snapshots")]
    reader.stop()
    assert {(answer.status_code, answer.json()["error"]) for answer in answers} == {
        (403, "expected the service that learns, got one that follows it; ask the writer")
    }


@pytest.mark.parametrize("path", ["/learn", "/predict", "/snapshot", "/rollback"])
def test_a_request_that_is_too_long_is_refused_before_it_is_read(service, path):
    parts = []

    async def receive():
        parts.append(b"x" * 60_000)
        return {"type": "http.request", "body": parts[-1], "more_body": len(parts) < 9}

    assert ask_by_hand(service, receive, path=path, length=100_001) == [413]
    assert parts == []
    assert ask_by_hand(service, receive, path=path) == [413]  # it did not say how long it is
    assert len(parts) == 2


def test_a_client_that_vanishes_is_no_fault_of_ours(service):
    parts = [{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}]

    async def receive():
        return parts.pop(0)

    assert ask_by_hand(service, receive) == []


def test_a_client_that_does_not_go_on_is_let_go(service, monkeypatch):
    monkeypatch.setattr("s6mod.serve.door.PATIENCE", 0.01)

    async def receive():
        await asyncio.sleep(60)

    assert ask_by_hand(service, receive) == [408]


def test_an_answer_may_take_longer_than_the_request(service, monkeypatch):
    from s6mod.serve.door import Door
    from s6mod.serve.metrics import Counts

    monkeypatch.setattr("s6mod.serve.door.PATIENCE", 0.01)
    came = []

    async def receive():
        if came:
            await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def app(scope, limited, send):
        for _ in range(2):
            came.append(await limited())

    scope = {"type": "http", "method": "GET", "path": "/events", "headers": [(b"host", b"127.0.0.1")]}
    asyncio.run(Door(app, service, None, Counts(), frozenset())(scope, receive, None))
    assert len(came) == 2


def test_who_does_not_go_on_at_the_end_is_told_or_let_go(service):
    async def stuck():
        service.stopping = True
        asyncio.current_task().cancel()  # as uvicorn does after its grace
        await asyncio.sleep(60)

    assert ask_by_hand(service, stuck) == [503]
    service.stopping = False
    assert ask_by_hand(service, None, "GET", "/events", stuck) == [200]


def test_a_second_signal_ends_it_at_once(service, monkeypatch):
    import signal

    from s6mod.serve import run

    codes = []
    monkeypatch.setattr(run.os, "_exit", codes.append)
    server = run._Server(run.uvicorn.Config(None), service, list)
    server.handle_exit(signal.SIGTERM, None)
    assert (codes, server.should_exit) == ([], True)
    server.handle_exit(signal.SIGTERM, None)
    assert codes == [128 + signal.SIGTERM]


def test_no_more_pages_are_live_than_can_be(client, service, monkeypatch):
    service.stopping = True  # or one that is live has no end
    monkeypatch.setattr("s6mod.serve.application.WATCHERS", 0)
    answer = client.get("/events")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "10")


def test_a_host_that_no_address_has_is_told(service):
    from s6mod.serve.run import serve

    with pytest.raises(ConfigError, match="expected a free address"):
        serve(service, ("a" * 70, 0), "a long token", print)


def test_who_asks_as_soon_as_the_address_is_told_is_not_refused_and_may_end_it(tmp_path):
    import signal

    from s6mod.serve.run import prepare, serve

    def ask(address):
        host, _, port = address.removeprefix("http://").partition(":")
        socket.create_connection((host, int(port)), timeout=60).close()
        signal.raise_signal(signal.SIGTERM)

    prepare(tmp_path, small, (SIDE, SIDE))
    service = Writer(tmp_path, None, Limits(), RULES)
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("a signal found no service"))
    try:
        assert serve(service, ("127.0.0.1", 0), None, ask) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert service.stopping


@pytest.mark.parametrize(("path", "word"), [("/predict", "tops"), ("/learn", "ids"), ("/learn", "top")])
def test_a_word_in_the_address_that_means_nothing_is_refused(client, service, path, word):
    images, _ = batch(1)
    answer = client.post(path, params={word: "3", "labels": '["a"]'}, content=npy(images), headers=NPY)
    assert answer.status_code == 400
    assert f"got {word!r}; leave it out" in answer.json()["error"]
    assert service.status()["journal"]["accepted"] == 1  # the snapshot of the start


def test_a_name_where_numbers_are_classes_is_told_how_a_number_is_sent(tmp_path):
    from s6mod.serve.application import application
    from s6mod.serve.run import prepare

    prepare(tmp_path, lambda: Learner("er", num_classes=2), (SIDE, SIDE))
    service = Writer(tmp_path, None, Limits(), RULES)
    try:
        client = testclient.TestClient(application(service), base_url="http://127.0.0.1")
        image = {"content": npy(batch(1)[0][:1]), "headers": NPY}
        refused = client.post("/learn", params={"labels": "1"}, **image)
        accepted = client.post("/learn", params={"labels": "[1]"}, **image)
    finally:
        service.stop()
    assert refused.json()["error"].endswith("got '1' at position 0; send such numbers, in a form or an address as [1]")
    assert (refused.status_code, accepted.status_code) == (400, 200)


def test_a_learner_that_has_diverged_is_told(client, service, monkeypatch):
    learn(client, 1)
    learned(service)
    monkeypatch.setattr(service.shown.published, "predict_proba", lambda images: np.full((len(images), 2), np.nan))
    answer = client.post("/predict", content=npy(batch(1)[0]), headers=NPY)
    assert (answer.status_code, answer.json()["error"][-12:]) == (503, "roll it back")


def test_requests_that_wait_for_the_journal_leave_room_for_predictions(opened, monkeypatch):
    from s6mod.serve.application import application

    with opened(limits=Limits(asking=1)) as service:
        client = testclient.TestClient(application(service), base_url="http://127.0.0.1")
        learn(client, 1)
        learned(service)
        there, go, accept = Event(), Event(), service.accept
        monkeypatch.setattr(service, "accept", lambda *given: (there.set(), go.wait(60), accept(*given))[-1])
        with ThreadPoolExecutor(1) as other:
            waits = other.submit(learn, client, 2)
            assert there.wait(60)
            refused = client.get("/status")
            answered = client.post("/predict", content=npy(batch(1)[0]), headers=NPY)
            go.set()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (answered.status_code, waits.result().status_code) == (200, 200)


def test_a_name_or_address_of_this_machine_is_as_good_as_another(service):
    from s6mod.serve.application import application

    hosts = [
        "localhost:1",
        "127.0.0.1",
        "127.0.0.2:8000",
        "[::1]:8000",
        "127.0.0.1.example.org",
        "[2001:db8::1]:80",
        "",
    ]
    client = testclient.TestClient(application(service), base_url="http://127.0.0.1")
    assert [client.get("/healthz", headers={"Host": host}).status_code for host in hosts] == [200] * 4 + [403] * 3


def test_a_head_request_gets_the_answer_of_get_without_its_body(client):
    answer = client.head("/healthz")
    assert (answer.status_code, answer.headers["content-length"], answer.content) == (200, "22", b"")


def test_with_a_token_only_what_tells_nothing_of_the_learner_is_open(service):
    from s6mod.serve.application import application

    client = testclient.TestClient(application(service, "a long token"), base_url="http://example.org")
    assert [client.get(path).status_code for path in ("/", "/healthz", "/docs", "/openapi.json")] == [200] * 4
    assert client.get("/status").status_code == 401
    assert client.get("/status", headers={"Authorization": "Bearer another"}).status_code == 401
    assert client.get("/status", headers={"Authorization": "Bearer a long token"}).status_code == 200


def test_metrics_reference_and_page_tell_what_is_there_and_fetch_nothing(client, service):
    learn(client, 1)
    learned(service)
    text = client.get("/metrics").text
    assert 's6mod_requests_total{path="/learn",status="200"} 1' in text
    assert "s6mod_waiting_batches 0" in text
    for path in ("/", "/docs"):
        page = client.get(path).text
        assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in page
    assert "/rollback" in client.get("/docs").text
    told = client.get("/openapi.json").json()["paths"]
    assert told.keys() >= {"/predict", "/learn", "/rollback"}
    assert {code for verbs in told.values() for verb in verbs.values() for code in verb["responses"]} == {"200", "4XX"}


@pytest.mark.parametrize(("host", "token"), [("0.0.0.0", None), ("::", None), ("example.org", None), ("::1", "short")])
def test_a_service_that_others_reach_needs_a_token(host, token):
    from s6mod.serve.run import check_address

    with pytest.raises(ConfigError, match="expected a token"):
        check_address(host, token)


def test_there_is_room_for_as_many_connections_as_the_system_allows():
    import resource

    from s6mod.serve.run import allow_connections

    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
        allow_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("option", [("--set", "updates=2"), ("--preset", "er/digits")])
def test_a_learner_to_go_on_from_is_changed_by_no_option(call, tmp_path, monkeypatch, option):
    monkeypatch.setattr("s6mod.serve.run.serve", lambda service, *_: service.stop() or 0)
    small().save(tmp_path / "saved")
    code, _, said = call("serve", tmp_path / "new", "--from", tmp_path / "saved", *option)
    assert code == 2
    assert f"expected --from alone, got {option[0]} too" in said
    assert not (tmp_path / "new").exists()


def test_what_is_said_of_a_new_service_is_told_to_mean_nothing_to_one_that_is_there(call, opened, monkeypatch):
    monkeypatch.setattr("s6mod.serve.run.serve", lambda service, *_: service.stop() or 0)
    code, _, said = call("serve", opened.folder, "--set", "updates=2", "--size", "64")
    assert (code, said.count("goes on as it was made: --set, --size means nothing to it")) == (0, 1)


def test_a_folder_with_something_else_in_it_is_left_alone(call, tmp_path):
    (tmp_path / "letter").write_text("dear")
    code, _, said = call("serve", tmp_path)
    assert code == 2
    assert "which holds something else" in said
