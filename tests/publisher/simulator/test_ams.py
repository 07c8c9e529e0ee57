"""The messaging service as the facts on receivers, 4, have it; then with its real client library, unchanged."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from argo_ams_library import AmsMessage, AmsServiceException, ArgoMessagingService  # type: ignore[import-untyped]

from publisher.simulator import Fault, Simulator
from publisher.simulator.pki import Pki
from tests.publisher.simulator.apel import (
    SUBSCRIPTION,
    TOKEN_PATH,
    TOPIC,
    authenticated,
    car,
    car_record,
    publish_body,
    signer,
)
from tests.publisher.simulator.records import Client, SimulatorReply

Connect = Callable[..., Client]
Ask = Callable[..., SimulatorReply]


@pytest.fixture
def ask(client: Client) -> Ask:
    return authenticated(client)


def error_of(reply: SimulatorReply) -> tuple[int, str, str]:
    error = reply.json["error"]
    assert error["code"] == reply.status
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    return reply.status, error["message"], error["status"]


def test_token(simulator: Simulator, client: Client, connect: Connect) -> None:
    assert (
        client("GET", TOKEN_PATH).json
        == connect(simulator, simulator.pki.client, port=simulator.token_port)("GET", TOKEN_PATH).json
    )
    unknown = client("GET", TOKEN_PATH.replace("localhost", "other"))
    assert error_of(unknown) == (404, "Host was not found", "NOT FOUND")


def test_a_token_may_be_in_the_address_and_the_header_takes_precedence(client: Client) -> None:
    token = client("GET", TOKEN_PATH).json["token"]
    body = publish_body(b"x")
    assert client("POST", f"{TOPIC}:publish?key={token}&key=bad", body).status == 200
    assert error_of(client("POST", f"{TOPIC}:publish?key=", body)) == (401, "Unauthorized", "UNAUTHORIZED")
    assert error_of(client("POST", f"{TOPIC}:publish?key=bad", body)) == (401, "Unauthorized", "UNAUTHORIZED")
    wrong = client("POST", f"{TOPIC}:publish?key={token}", body, {"x-api-key": "bad"})
    assert error_of(wrong) == (401, "Unauthorized", "UNAUTHORIZED")


def test_checks_come_in_the_order_of_the_real_one(client: Client, ask: Ask, pki: Pki, connect: Connect) -> None:
    bad = {"x-api-key": "bad"}
    elsewhere = TOPIC.replace("accounting", "elsewhere")
    assert error_of(client("POST", f"{TOPIC}!:publish", "")) == (400, "Invalid topic name", "INVALID_ARGUMENT")
    assert error_of(client("POST", f"{elsewhere}:publish", "")) == (401, "Unauthorized", "UNAUTHORIZED")
    assert error_of(client("POST", f"{elsewhere}:publish", "", bad)) == (404, "project doesn't exist", "NOT_FOUND")
    assert error_of(client("POST", f"{TOPIC}:publish", "", bad)) == (401, "Unauthorized", "UNAUTHORIZED")
    assert error_of(ask("POST", f"{TOPIC}x:publish", "")) == (404, "Topic doesn't exist", "NOT_FOUND")
    assert error_of(ask("POST", f"{TOPIC}:publish", "no JSON")) == (
        400,
        "Invalid Message Arguments",
        "INVALID_ARGUMENT",
    )
    number = json.dumps({"messages": [{"attributes": {"n": 1}, "data": ""}]})
    assert error_of(ask("POST", f"{TOPIC}:publish", number))[0] == 400
    assert ask("GET", "/v1/x").body == b"404 page not found\n"
    with Simulator(pki, publishers=["/CN=other"]) as closed:
        forbidden = authenticated(connect(closed, pki.client))("POST", f"{TOPIC}:publish", "no JSON")
        assert error_of(forbidden) == (403, "Access to this resource is forbidden", "FORBIDDEN")
    with Simulator(pki, authorised=["/CN=other"]) as closed:
        assert error_of(connect(closed, pki.client)("GET", TOKEN_PATH))[0] == 404


def test_publish_pull_acknowledge(ask: Ask) -> None:
    assert ask("POST", f"{TOPIC}:publish", publish_body(b"a", b"b")).json == {"messageIds": ["0", "1"]}
    assert ask("POST", f"{TOPIC}:publish", publish_body(b"c")).json == {"messageIds": ["2"]}
    assert ask("POST", f"{TOPIC}:publish", '{"messages": []}').json == {"messageIds": []}
    integers = ask("POST", f"{SUBSCRIPTION}:pull", '{"maxMessages": 1}')
    assert error_of(integers) == (400, "Invalid Pull Parameters Arguments", "INVALID_ARGUMENT")
    pull = json.dumps({"maxMessages": "2", "returnImmediately": "true"})
    first = ask("POST", f"{SUBSCRIPTION}:pull", pull).json["receivedMessages"]
    assert [entry["message"]["data"] for entry in first] == ["YQ==", "Yg=="]
    assert first[0]["message"]["attributes"] == {"empaid": "x"}
    assert ask("POST", f"{SUBSCRIPTION}:pull", pull).json["receivedMessages"] == first, "nothing moves before the ack"
    acks = json.dumps({"ackIds": [first[1]["ackId"]]})
    assert ask("POST", f"{SUBSCRIPTION}:acknowledge", acks).json == {}
    assert error_of(ask("POST", f"{SUBSCRIPTION}:acknowledge", acks)) == (
        500,
        "no ack pending",
        "INTERNAL_SERVER_ERROR",
    )
    rest = ask("POST", f"{SUBSCRIPTION}:pull", pull).json["receivedMessages"]
    assert [entry["message"]["data"] for entry in rest] == ["Yw=="]
    beyond = json.dumps({"ackIds": ["projects/accounting/subscriptions/apel:9"]})
    assert error_of(ask("POST", f"{SUBSCRIPTION}:acknowledge", beyond))[1] == "wrong ack"
    foreign = json.dumps({"ackIds": ["projects/other/subscriptions/apel:2"]})
    assert error_of(ask("POST", f"{SUBSCRIPTION}:acknowledge", foreign))[1] == "Invalid ack id"
    assert error_of(ask("POST", f"{SUBSCRIPTION}x:pull", pull)) == (404, "Subscription doesn't exist", "NOT_FOUND")


def test_acknowledging_too_late(simulator: Simulator, ask: Ask) -> None:
    now = [0.0]
    simulator.ams._clock = lambda: now[0]
    ask("POST", f"{TOPIC}:publish", publish_body(b"a"))
    (entry,) = ask("POST", f"{SUBSCRIPTION}:pull", "{}").json["receivedMessages"]
    now[0] = 11.0
    late = ask("POST", f"{SUBSCRIPTION}:acknowledge", json.dumps({"ackIds": [entry["ackId"]]}))
    assert error_of(late) == (408, "ack timeout", "TIMEOUT")
    now[0] = 10.9
    in_time = ask("POST", f"{SUBSCRIPTION}:acknowledge", json.dumps({"ackIds": [entry["ackId"]]}))
    assert in_time.json == {}, "only whole seconds count"


def test_sizes(pki: Pki, ask: Ask, connect: Connect) -> None:
    assert ask("POST", f"{TOPIC}:publish", publish_body(b"x" * 1_120_000)).status == 200
    too_much = publish_body(b"x" * 1_130_000)
    assert error_of(ask("POST", f"{TOPIC}:publish", too_much)) == (500, "Backend Error", "INTERNAL_SERVER_ERROR")
    assert error_of(ask("POST", f"{TOPIC}:publish", b"x" * (16 * 2**20 + 1)))[0] == 413
    with Simulator(pki, oversize=413) as documented:
        reply = authenticated(connect(documented, pki.client))("POST", f"{TOPIC}:publish", too_much)
        assert error_of(reply) == (413, "Message size is too large", "INVALID_ARGUMENT")


def test_what_came_before_the_failure_in_a_call_stays(simulator: Simulator, ask: Ask) -> None:
    assert ask("POST", f"{TOPIC}:publish", publish_body(b"a", b"x" * 1_200_000, b"c")).status == 500
    assert [message.content() for message in simulator.ams.messages()] == [b"a"]


def test_an_attribute_that_breaks_the_stored_json_breaks_every_pull(ask: Ask) -> None:
    assert ask("POST", f"{TOPIC}:publish", publish_body(b"a", attributes={"empaid": 'a"b'})).status == 200
    broken = error_of(ask("POST", f"{SUBSCRIPTION}:pull", "{}"))
    assert broken[:2] == (500, "Message retrieved from broker network has invalid JSON Structure")


def test_bodies_are_read_as_go_reads_them(ask: Ask) -> None:
    for body in ('{"messages": null}', "{}", '{"other": 1}'):
        assert ask("POST", f"{TOPIC}:publish", body).json == {"messageIds": []}
    nothing = '{"messages": [{"data": null, "attributes": null}]}'
    assert ask("POST", f"{TOPIC}:publish", nothing).json == {"messageIds": ["0"]}
    for count in ("x", "", "1"):
        (entry,) = ask("POST", f"{SUBSCRIPTION}:pull", json.dumps({"maxMessages": count})).json["receivedMessages"]
        assert "attributes" not in entry["message"]
    assert error_of(ask("POST", f"{SUBSCRIPTION}:pull", ""))[1] == "Invalid Pull Parameters Arguments"
    acknowledge = f"{SUBSCRIPTION}:acknowledge"
    assert error_of(ask("POST", f"{SUBSCRIPTION}x:acknowledge", "no JSON"))[1] == "Invalid ack parameter"
    assert error_of(ask("POST", acknowledge, '{"ackIds": [1]}'))[1] == "Invalid ack parameter"
    assert {error_of(ask("POST", acknowledge, body))[1] for body in ("{}", '{"ackIds": []}')} == {"Invalid ack id"}


def test_names_and_methods_are_judged_before_the_token(client: Client) -> None:
    odd_project = TOPIC.replace("accounting", "a:b")
    assert error_of(client("POST", f"{odd_project}!:publish", "")) == (400, "Invalid project name", "INVALID_ARGUMENT")
    assert error_of(client("GET", f"{TOPIC}:other", ""))[1] == "Invalid topic name"
    wrong = [("GET", f"{TOPIC}:publish"), ("POST", TOPIC), ("GET", f"{SUBSCRIPTION}:pull")]
    assert [client(method, path, "").status for method, path in wrong] == [405] * 3


def test_faults(simulator: Simulator, client: Client, ask: Ask) -> None:
    simulator.faults.replace([Fault("expire", service="publish", count=1)])
    assert error_of(ask("POST", f"{TOPIC}:publish", publish_body(b"a")))[0] == 401
    assert error_of(ask("POST", f"{TOPIC}:publish", publish_body(b"a")))[0] == 401, "the old token stays bad"
    renewed = authenticated(client)
    assert renewed("POST", f"{TOPIC}:publish", publish_body(b"a")).status == 200
    simulator.faults.replace(
        [Fault("status", service="publish", match="car-7\\b"), Fault("status", code=403, service="token")]
    )
    assert error_of(renewed("POST", f"{TOPIC}:publish", publish_body(b"car-7")))[0] == 500, "seen through the base64"
    assert renewed("POST", f"{TOPIC}:publish", publish_body(b"car-77")).status == 200
    assert error_of(client("GET", TOKEN_PATH))[0] == 403
    simulator.faults.replace([Fault("status", code=502), Fault("html", code=200)])
    balancer = renewed("POST", f"{TOPIC}:publish", publish_body(b"a"))
    assert (balancer.status, balancer.headers["content-type"]) == (502, "text/html")
    assert simulator.ams.stats()["messages"] == 2


@pytest.fixture
def argo(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real client: its token by certificate, then the port, which its address cannot carry while it gets that."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(simulator.pki.ca_file))
    credential = simulator.pki.client
    service = ArgoMessagingService(
        endpoint="localhost", project="accounting", cert=str(credential.certificate), key=str(credential.key),
        authn_port=simulator.token_port,
    )  # fmt: skip
    service.endpoint = f"localhost:{simulator.port}"
    return service


def test_the_real_client_publishes_pulls_and_acknowledges(simulator: Simulator, argo: Any) -> None:
    message = signer(simulator.pki.client).sign(car(car_record(1), car_record(2)))
    answer = argo.publish("gLite-APEL", AmsMessage(data=message, attributes={"empaid": "m1"}))
    assert answer == {"messageIds": ["0"]}
    ((ack_id, pulled),) = argo.pull_sub("apel", num=1, return_immediately=True)
    assert (pulled.get_data(), pulled.get_attr()) == (message, {"empaid": "m1"})
    assert argo.ack_sub("apel", [ack_id])
    assert argo.pull_sub("apel", num=1, return_immediately=True) == []
    assert argo.has_topic("gLite-APEL")
    assert argo.has_sub("apel")
    assert not argo.has_topic("other")
    assert simulator.apel.holdings().record_ids == {"car-1": 1, "car-2": 1}


def test_the_real_client_understands_the_errors(simulator: Simulator, argo: Any) -> None:
    simulator.ams.expire_tokens()
    with pytest.raises(AmsServiceException) as caught:
        argo.publish("gLite-APEL", AmsMessage(data="x", attributes={}))
    assert caught.value.code == 401


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl program is not installed")
@pytest.mark.parametrize("key", ["rsa", "ec"])
def test_openssl_verifies_what_the_real_client_pulls(simulator: Simulator, argo: Any, tmp_path: Path, key: Any) -> None:
    payload = car(car_record(1))
    credential = simulator.pki.issue(f"signer-{key}", "ce1.example.org", key=key)
    argo.publish("gLite-APEL", AmsMessage(data=signer(credential).sign(payload), attributes={"empaid": "m1"}))
    ((_, pulled),) = argo.pull_sub("apel", num=1, return_immediately=True)
    (tmp_path / "message").write_bytes(pulled.get_data())
    command = ["openssl", "smime", "-verify", "-text", "-CAfile", str(simulator.pki.ca_file), "-purpose", "any"]
    done = subprocess.run([*command, "-in", str(tmp_path / "message")], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == payload
