"""A TCP proxy in front of a process, which disturbs what comes to it."""
import contextlib
import os
import re
import socket
import threading
import time

CHUNK_BYTES = 64 * 1024


def ports_of(pid):
    """The local ports of the connections that a process has open."""
    inodes = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inodes.update(re.findall(r"^socket:\[(\d+)\]$", os.readlink(entry.path)))
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}") as lines:
            for line in list(lines)[1:]:
                words = line.split()
                if words[9] in inodes:
                    ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return ports


def one_bit_flipped(data):
    spoilt = bytearray(data)
    spoilt[len(data) // 2] ^= 1
    return bytes(spoilt)


class Link:
    """Forwards connections from a port of its own to `target`, a (host, port), until close().

    cut(seconds)      closes all connections, and new ones at once
    swallow(seconds)  forwards nothing and closes nothing, so that neither side hears of it; with `of` only on connections
                      from the process of that number, now or later
    stall()           the same on the connections that are open now, for good
    flip()            inverts one bit in the middle of the next large piece that goes to the process
    lose()            leaves such a piece out
    repeat()          sends such a piece twice
    """

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.lock = threading.Lock()
        self.pairs = set()  # of connected sockets
        self.cut_until = self.swallow_until = 0.0
        self.swallow_of = None
        self.stalled = set()  # pairs
        self.to_spoil = []  # what becomes of the next large pieces, one function for each
        self.closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, seconds):
        self.cut_until = time.monotonic() + seconds
        self._drop_all()

    def swallow(self, seconds, of=None):
        self.swallow_of = of
        self.swallow_until = time.monotonic() + seconds

    def stall(self):
        with self.lock:
            self.stalled |= self.pairs

    def flip(self):
        self._spoil_next(one_bit_flipped)

    def lose(self):
        self._spoil_next(lambda data: b"")

    def repeat(self):
        self._spoil_next(lambda data: data + data)

    def close(self):
        self.closing = True
        self.listener.close()
        self._drop_all()

    def _accept(self):
        while not self.closing:
            try:
                outside, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(outside,), daemon=True).start()

    def _connect(self, outside):
        self._wait_while_swallowing(outside)
        try:
            if time.monotonic() < self.cut_until:
                raise ConnectionError("cut")
            inside = socket.create_connection(self.target, timeout=1)
        except OSError:
            outside.close()  # as if the process were not there
            return
        inside.settimeout(None)
        pair = (outside, inside)
        for end in pair:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.lock:
            self.pairs.add(pair)
        if time.monotonic() < self.cut_until:  # it was cut meanwhile
            self._drop(pair)
            return
        threading.Thread(target=self._pump, args=(pair, inside, outside), daemon=True).start()
        self._pump(pair, outside, inside)

    def _pump(self, pair, source, destination):
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                self._wait_while_swallowing(pair[0], pair)
                destination.sendall(self._spoil(data) if destination is pair[1] else data)
        self._wait_while_swallowing(pair[0], pair)  # nor that the other has given up
        self._drop(pair)

    def _spoil_next(self, spoilt):
        with self.lock:
            self.to_spoil.append(spoilt)

    def _spoil(self, data):
        with self.lock:
            if not self.to_spoil or len(data) < CHUNK_BYTES // 32:
                return data
            spoilt = self.to_spoil.pop(0)
        return spoilt(data)

    def _wait_while_swallowing(self, outside, pair=None):
        """`outside`: the socket of who has connected."""
        while not self.closing and pair is not None and pair in self.stalled:
            time.sleep(0.01)
        if time.monotonic() >= self.swallow_until:
            return
        with contextlib.suppress(OSError):
            if self.swallow_of is not None and outside.getpeername()[1] not in ports_of(self.swallow_of):
                return
        while not self.closing and time.monotonic() < self.swallow_until:
            time.sleep(0.01)

    def _drop_all(self):
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            self._drop(pair)

    def _drop(self, pair):
        with self.lock:
            self.pairs.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
