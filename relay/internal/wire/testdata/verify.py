"""Verifies the vectors that are signed with HMAC-SHA256 or without a key, and reads what they say.

It needs nothing but the standard library of Python 3: python3 verify.py vectors.json
"""

import base64
import gzip
import hashlib
import hmac
import json
import sys


def words_of(vector, keys):
    """Returns the words of a message whose signature and body are good."""
    text = vector["headers"]["Errand-Relay"]
    if vector["key"]:
        kind, key = keys[vector["key"]].split(":")
        assert kind == "hmac-sha256"
        want = hmac.new(bytes.fromhex(key), text.encode("ascii"), hashlib.sha256).hexdigest()
    else:
        want = hashlib.sha256(text.encode("ascii")).hexdigest()
    assert hmac.compare_digest(want, vector["headers"]["Errand-Relay-Signature"]), vector["name"]
    words = text.split(" ")
    encoding, length, digest = words[-3:]
    body = base64.b64decode(vector["body"] or "")
    assert len(body) == int(length) and hashlib.sha256(body).hexdigest() == digest, vector["name"]
    if encoding == "gzip" and body:
        body = gzip.decompress(body)
    assert body.decode("utf-8") == vector["json"], vector["name"]
    return words


def read_request(vector, keys):
    words = words_of(vector, keys)
    version, message, method, server, device, stream, kind, request, n, token, check = words[:-3]
    assert (version, message) == ("errand-relay/1", "request")
    assert (method, server, device) == (vector["method"], vector["server"], vector["device"])
    assert kind in ("check", "ask", "send") and str(int(n)) == n
    for value in (stream, request, token, check):
        assert len(bytes.fromhex(value)) == 16
    if kind == "ask":
        assert check == hashlib.sha256(bytes.fromhex(token)).hexdigest()[:32]
    for job in json.loads(vector["json"] or "[]"):
        assert len(bytes.fromhex(job["id"])) == 16 and job["kind"] and "args" in job


def read_answer(vector, keys, requests):
    words = words_of(vector, keys)
    version, message, request, status, retry = words[:-3]
    assert (version, message) == ("errand-relay/1", "answer")
    assert request == requests[vector["request"]]["headers"]["Errand-Relay-Signature"]
    assert int(status) == vector["status"] and retry == vector["headers"].get("Retry-After", "0")
    answer = json.loads(vector["json"])
    if int(status) != 200:
        assert answer["error"]
        return
    assert answer["status"] in ("checked", "taken", "stale", "held", "forked", "resumed", "renewed")
    taking = answer.get("s", {"n": 0})
    ids = base64.b64decode(taking.get("jobs", ""))
    outcomes = taking.get("outcomes", "")
    assert len(ids) == 16 * len(outcomes) and set(outcomes) <= set("edrbl")
    assert outcomes.count("r") == len(taking.get("reasons", []))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        vectors = json.load(file)
    keys = vectors["keys"]
    requests = {v["name"]: v for v in vectors["requests"] if v["key"] in ("shared", "")}
    answers = [v for v in vectors["answers"] if v["key"] in ("shared", "")]
    for vector in requests.values():
        read_request(vector, keys)
    for vector in answers:
        read_answer(vector, keys, requests)
    print(f"{len(requests)} requests and {len(answers)} answers")


main()
