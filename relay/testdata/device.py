"""A device of one stream, written from docs/relay.md: it sends a job of each KIND, and what was left before.

It needs nothing but the standard library of Python 3:

    python3 device.py URL SERVER DEVICE KEY-FILE DATABASE [KIND ...]

It prints how many jobs are in each state. Its exit status is 1 if the server does not answer.
"""

import base64
import gzip
import hashlib
import hmac
import json
import os
import sqlite3
import sys
import urllib.error
import urllib.request

ZEROS = "0" * 32
STATES = {"e": "done", "d": "done", "r": "refused", "b": "waiting", "l": "waiting"}


class NoAnswer(Exception):
    pass


class Device:
    def __init__(self, url, server, name, key_file, database):
        self.url, self.server, self.name = url, server, name
        with open(key_file, encoding="ascii") as file:
            kind, key = file.read().strip().split(":")
        assert kind == "hmac-sha256"
        self.key = bytes.fromhex(key)
        self.db = sqlite3.connect(database, isolation_level=None)
        self.db.execute("CREATE TABLE IF NOT EXISTS stream (id, n, token)")
        self.db.execute("CREATE TABLE IF NOT EXISTS job (id PRIMARY KEY, kind, state)")
        if not self.db.execute("SELECT 1 FROM stream").fetchone():
            self.db.execute("INSERT INTO stream VALUES (?, 0, ?)", (os.urandom(16).hex(), ZEROS))
        self.ready = False  # may send

    def sign(self, text):
        return hmac.new(self.key, text.encode("ascii"), hashlib.sha256).hexdigest()

    def request(self, kind, check=ZEROS, jobs=()):
        stream, n, token = self.db.execute("SELECT * FROM stream").fetchone()
        body = gzip.compress(json.dumps(jobs).encode("utf-8")) if jobs else b""
        digest = hashlib.sha256(body).hexdigest()
        words = ["errand-relay/1", "request", "POST", self.server, self.name, stream, kind, os.urandom(16).hex(), str(n)]
        words += [ZEROS if kind == "check" else token, check, "gzip", str(len(body)), digest]
        text = " ".join(words)
        headers = {"Errand-Relay": text, "Errand-Relay-Signature": self.sign(text)}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url, body, headers, method="POST")) as answer:
                return self.open(headers["Errand-Relay-Signature"], answer)
        except urllib.error.HTTPError as error:
            raise NoAnswer(f"status {error.code}: {error.read()!r}") from error
        except OSError as error:
            raise NoAnswer(str(error)) from error

    def open(self, signature, answer):
        text, body = answer.headers.get("Errand-Relay", ""), answer.read()
        if not hmac.compare_digest(self.sign(text), answer.headers.get("Errand-Relay-Signature", "")):
            raise NoAnswer("it is not signed")
        retry, digest = answer.headers.get("Retry-After", "0"), hashlib.sha256(body).hexdigest()
        want = ["errand-relay/1", "answer", signature, str(answer.status), retry, "gzip", str(len(body)), digest]
        if text.split(" ") != want:
            raise NoAnswer("it is that of another request")
        return json.loads(gzip.decompress(body))

    def ask(self):
        checked = self.request("check")
        self.take(self.request("ask", check=checked["check"]))

    def send(self):
        waiting = self.db.execute("SELECT id, kind FROM job WHERE state = 'waiting' ORDER BY rowid LIMIT 1000").fetchall()
        if waiting:
            self.ready = False
            self.take(self.request("send", jobs=[{"id": id, "kind": kind, "args": {}} for id, kind in waiting]))
        return bool(waiting)

    def take(self, answer):
        if answer["status"] != "taken":
            raise NoAnswer(answer["status"])  # it would wait for people if it were held
        taken = answer.get("s", {})
        ids = base64.b64decode(taken.get("jobs", ""))
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            if self.db.execute("SELECT n FROM stream").fetchone()[0] == taken.get("n", 0):
                for i, outcome in enumerate(taken.get("outcomes", "")):
                    job = ids[16 * i : 16 * i + 16].hex()
                    self.db.execute("UPDATE job SET state = ? WHERE id = ? AND state = 'waiting'", (STATES[outcome], job))
            self.db.execute("UPDATE stream SET n = ?, token = ?", (answer["n"], answer["token"]))
        self.ready = True


def main():
    device = Device(*sys.argv[1:6])
    for kind in sys.argv[6:]:
        device.db.execute("INSERT INTO job VALUES (?, ?, 'waiting')", (os.urandom(16).hex(), kind))
    failures, more = 0, True
    while more and failures < 3:
        try:
            if not device.ready:
                device.ask()
            more = device.send()
        except NoAnswer:
            device.ready, failures = False, failures + 1
    states = device.db.execute("SELECT state, count(*) FROM job GROUP BY state ORDER BY state")
    print(", ".join(f"{n} {state}" for state, n in states))
    sys.exit(failures == 3)


main()
