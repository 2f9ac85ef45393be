"""Locks with fencing tokens, through `pawl serve`.

    import pawl

    client = pawl.Client("http://127.0.0.1:7295")
    with client.lock("deploy/prod", wait=60) as lease:
        write(..., fence=lease.token)   # the resource refuses a smaller token
        lease.check()                   # raises Lost if the lease is over

One file, with nothing but the standard library of Python 3.8 or later: copy it.
"""

import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

__all__ = ["Client", "Lease", "Error", "Refused", "Held", "Lost", "Unreachable"]

# How long one request may wait for a lock; then it is repeated.
_POLL = 20.0


class Error(Exception):
    """What this module raises, but for TimeoutError."""


class Refused(Error):
    """The server has refused a request: nothing was done. code says why."""

    def __init__(self, status, reply):
        self.status, self.code = status, reply.get("code", "")
        super().__init__("%s (%s)" % (reply.get("error", "status %d" % status), self.code))


class Held(Refused):
    """Somebody else holds the lock. holder says who, if that is known."""

    def __init__(self, status, reply):
        self.holder = reply.get("holder")
        super().__init__(status, reply)


class Lost(Error):
    """The lease ended before it was released: another may hold the lock."""


class Unreachable(Error):
    """The server, or its store, did not reply: the request may have been carried out."""


def _now():
    """A clock that nobody sets, and that goes on while the machine sleeps, where there is one."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class Client:
    """Takes locks at one server. It may be used by several threads.

    token is the bearer token, context an ssl.SSLContext for https, timeout how long
    a reply is waited for, in seconds.
    """

    def __init__(self, url="http://127.0.0.1:7295", token=None, context=None, timeout=10.0):
        self._url, self._token, self._timeout = url.rstrip("/"), token, timeout
        handlers = [urllib.request.ProxyHandler({})]
        if context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._open = urllib.request.build_opener(*handlers).open

    def lock(self, name, ttl=30.0, wait=None, renew=True, label=None, **kind):
        """Take a lock, and return its Lease.

        wait is how many seconds to wait for it: 0 not at all (Held if somebody else
        holds it), None for ever; after them it is TimeoutError. The lease is renewed
        by a thread, unless renew is False; a process that dies costs the others the
        ttl. kind is what /v1/acquire takes beside that: kind="rwmutex", shared=True, or
        kind="semaphore", limit=3, units=2.
        """
        ask = dict(kind, name=name, claim=str(uuid.uuid4()), ttl_ms=int(ttl * 1000))
        if label is not None:
            ask["label"] = label
        try:
            return self._acquire(ask, ttl, wait, renew)
        except Refused:
            raise
        except BaseException:
            self._give_up(ask)
            raise

    def _acquire(self, ask, ttl, wait, renew):
        end = None if wait is None else _now() + wait
        failures, trouble = 0, None
        while True:
            left = _POLL if end is None else end - _now()
            if left <= 0 and (wait > 0 or failures > 3):
                if trouble is not None:
                    raise trouble
                raise TimeoutError("lock %r: still held after %g s" % (ask["name"], wait))
            poll = min(_POLL, max(left, 0.0))
            ask["wait_ms"] = 0 if wait == 0 else max(1, int(poll * 1000))
            sent = _now()
            try:
                status, reply = self._post("/v1/acquire", ask, self._timeout + poll)
            except Unreachable as e:
                failures, trouble = failures + 1, e
                time.sleep(min(2.0, 0.05 * 2 ** min(failures, 6)))
                continue
            failures, trouble = 0, None
            if status == 200:
                until = sent + reply["valid_ms"] / 1000.0
                if _now() < until:  # else the same request renews it
                    return Lease(self, ask, ttl, reply, until, renew)
            elif status == 409 and reply.get("code") == "held":
                raise Held(status, reply)
            elif status not in (202, 410):  # gone: it stands at the end of the queue again
                raise Refused(status, reply)

    def _give_up(self, ask):
        try:
            self._post("/v1/release", {"name": ask["name"], "claim": ask["claim"]}, min(self._timeout, 2.0))
        except Error:
            pass  # the claim runs out

    def inspect(self, name):
        """Return who holds a name and who waits for it."""
        return self._get("/v1/inspect?" + urllib.parse.urlencode({"name": name}))

    def list(self, prefix=""):
        """Return the queues of the names that are held or waited for."""
        reply = self._get("/v1/list?" + urllib.parse.urlencode({"prefix": prefix}))
        if not reply["complete"]:
            raise Unreachable("list: %s" % reply.get("error"))
        return reply["queues"]

    def _get(self, path):
        status, reply = self._send(urllib.request.Request(self._url + path), self._timeout)
        if status != 200:
            raise Refused(status, reply)
        return reply

    def _post(self, path, body, timeout):
        data = json.dumps(body).encode()
        return self._send(urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}), timeout)

    def _send(self, request, timeout):
        if self._token is not None:
            request.add_header("Authorization", "Bearer " + self._token)
        try:
            try:
                with self._open(request, timeout=timeout) as r:
                    status, text = r.status, r.read()
            except urllib.error.HTTPError as e:
                with e:
                    status, text = e.code, e.read()
            reply = json.loads(text)
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise Unreachable("%s: %s" % (request.full_url, e)) from e
        if status >= 500 and status != 501 or status == 429:
            raise Unreachable("%s: %s" % (request.full_url, reply.get("error")))
        return status, reply


class Lease:
    """A lock that is held.

    token is greater than that of every earlier lease of the name; with handle another
    process can adopt it; lost is an Event that is set when the lease ends before it is
    released.
    """

    def __init__(self, client, ask, ttl, reply, until, renew):
        self.name, self.claim, self.token, self.handle = ask["name"], ask["claim"], reply["token"], reply["handle"]
        self.lost = threading.Event()
        self._client, self._ttl, self._until = client, ttl, until
        self._over = threading.Event()
        self._renewer = None
        if renew:
            self._renewer = threading.Thread(target=self._keep, name="pawl " + self.name, daemon=True)
            self._renewer.start()

    def valid(self):
        """Return for how many seconds the lease is valid for certain, 0 if it is over."""
        if self.lost.is_set() or self._over.is_set():
            return 0.0
        return max(0.0, self._until - _now())

    def check(self):
        """Raise Lost if the lease is over."""
        if self.valid() <= 0:
            raise Lost("the lease of %r is over" % self.name)

    def renew(self):
        """Renew the lease now. Lost: it is over. Unreachable: it lives until valid() is 0."""
        self.check()
        sent = _now()
        body = {"name": self.name, "claim": self.claim, "ttl_ms": int(self._ttl * 1000)}
        status, reply = self._client._post("/v1/renew", body, min(self._client._timeout, self._ttl / 4))
        if status == 410:
            self.lost.set()
            raise Lost("the lease of %r is over: %s" % (self.name, reply.get("error")))
        if status != 200:
            raise Refused(status, reply)
        self._until = max(self._until, sent + reply["valid_ms"] / 1000.0)

    def _keep(self):
        pause = self._ttl / 3
        while not self._over.wait(min(pause, max(0.0, self.valid()))):
            try:
                self.renew()
                pause = self._ttl / 3
            except Lost:
                self.lost.set()
                return
            except Error:
                pause = min(1.0, self._ttl / 30)

    def release(self):
        """Release the lock. Lost: the lease was over before, so another may have held it."""
        if self._over.is_set():
            return
        held = self.valid() > 0
        self._over.set()
        if self._renewer is not None:
            self._renewer.join()
        for failures in range(3):
            try:
                status, reply = self._client._post("/v1/release", {"name": self.name, "claim": self.claim}, self._client._timeout)
                if status != 200:
                    raise Refused(status, reply)
                held = held and (reply["was"] == "holding" or failures > 0)
                break
            except Unreachable:
                time.sleep(0.1)  # if it stays so the claim runs out
        if not held:
            raise Lost("the lease of %r was over before it was released" % self.name)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            self.release()
        except Error:
            if kind is None:
                raise
        return False
