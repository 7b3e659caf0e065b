#!/usr/bin/env python3
"""Tests of what chaos.py is made of, without a cluster."""
import os
import pathlib
import random
import socket
import sys
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "support"))

import chaos  # noqa: E402  (they are beside this folder)
import faults  # noqa: E402
import links  # noqa: E402
import table  # noqa: E402


def job(step, *attempts):
    return {"step": step, "result": {"attempts": [{"cause": cause, "last_step": last} for cause, last in attempts]}}


class Figures(unittest.TestCase):
    def test_percentile_is_the_smallest_value_that_enough_do_not_exceed(self):
        self.assertEqual(table.percentile([3, 1, 2, 4], 50), 2)
        self.assertEqual(table.percentile([3, 1, 2, 4], 51), 3)
        self.assertEqual(table.percentile(range(1, 101), 99), 99)
        self.assertEqual(table.percentile([7], 1), 7)
        self.assertIsNone(table.percentile([], 50))

    def test_a_fault_without_figures_has_a_row(self):
        text = table.text_of({"kill": table.Figures(count=2, recovery_seconds=[0.5, 1.25]), "freeze": table.Figures()})
        self.assertIn("0.50     1.25     1.25", text)
        self.assertIn("freeze", text)


class Draws(unittest.TestCase):
    def test_same_seed_draws_the_same(self):
        draws = [faults.draw_faults(random.Random(5), faults.FAULTS, 10) for _ in range(2)]
        self.assertEqual(*draws)

    def test_pauses_leave_time_to_recover(self):
        for seed in range(200):
            pauses = [pause for pause, _ in faults.draw_faults(random.Random(seed), faults.FAULTS, 10, most=8)]
            self.assertLessEqual(len(pauses), 8)
            self.assertGreaterEqual(min(pauses), 0)
            self.assertLessEqual(sum(pauses), 7)

    def test_no_more_workers_are_killed_than_are_spare(self):
        for spare in (1, 2):
            for seed in range(200):
                drawn = faults.draw_faults(random.Random(seed), faults.FAULTS, 10, spare=spare)
                kills = [fault.kills_workers for _, fault in drawn]
                self.assertGreaterEqual(min(kills), 0)
                self.assertLessEqual(sum(kills), spare)

    def test_without_a_worker_to_spare_no_more_is_drawn(self):
        kill = [faults.BY_NAME["kill"]]
        for seed in range(20):
            self.assertEqual(len(faults.draw_faults(random.Random(seed), kill, 10, spare=1)), 1)

    def test_every_fault_is_drawn(self):
        drawn = {fault.name for seed in range(500) for _, fault in faults.draw_faults(random.Random(seed), faults.FAULTS, 10)}
        self.assertEqual(drawn, set(faults.BY_NAME))


class Progress(unittest.TestCase):
    def test_after_an_attempt_ended_steps_done_again_do_not_count(self):
        before = job(50, (None, 0))
        self.assertFalse(chaos.came_further(job(60, (None, 0)), before, ends_attempts=True))
        self.assertFalse(chaos.came_further(job(55, ("worker_lost", 55), (None, 0)), before, ends_attempts=True))
        self.assertTrue(chaos.came_further(job(56, ("worker_lost", 55), (None, 0)), before, ends_attempts=True))

    def test_where_an_attempt_may_end_both_are_known(self):
        before = job(50, (None, 0))
        self.assertTrue(chaos.came_further(job(51, (None, 0)), before, ends_attempts=None))
        self.assertFalse(chaos.came_further(job(55, ("unreachable", 55), (None, 0)), before, ends_attempts=None))
        self.assertTrue(chaos.came_further(job(56, ("unreachable", 55), (None, 0)), before, ends_attempts=None))

    def test_without_an_end_any_step_counts(self):
        self.assertFalse(chaos.came_further(job(50, (None, 0)), job(50, (None, 0)), ends_attempts=False))
        self.assertTrue(chaos.came_further(job(51, (None, 0)), job(50, (None, 0)), ends_attempts=False))


class Echo:
    """A server that sends back what it gets."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    @staticmethod
    def _echo(connection):
        try:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
        except OSError:
            pass
        connection.close()


class Links(unittest.TestCase):
    def setUp(self):
        self.echo = Echo()
        self.link = links.Link(self.echo.listener.getsockname())
        self.addCleanup(self.echo.listener.close)
        self.addCleanup(self.link.close)

    def connect(self):
        host, port = self.link.address.split(":")
        connection = socket.create_connection((host, int(port)), timeout=20)
        self.addCleanup(connection.close)
        return connection

    def send(self, connection, data):
        connection.sendall(data)
        return self.receive(connection, len(data))

    @staticmethod
    def receive(connection, size):
        got = b""
        while len(got) < size:
            piece = connection.recv(1 << 16)
            if not piece:
                raise ConnectionError("closed")
            got += piece
        return got

    def test_forwards_both_ways(self):
        data = random.Random(1).randbytes(300_000)
        connection = self.connect()
        half = threading.Thread(target=connection.sendall, args=(data,))
        half.start()
        got = b""
        while len(got) < len(data):
            got += connection.recv(1 << 16)
        half.join()
        self.assertEqual(got, data)

    def test_cut_closes_connections_and_new_ones_until_it_is_over(self):
        connection = self.connect()
        self.assertEqual(self.send(connection, b"a"), b"a")
        self.link.cut(0.5)
        with self.assertRaises(OSError):
            self.send(connection, b"b")
        with self.assertRaises(OSError):
            self.send(self.connect(), b"c")
        give_up_at = time.monotonic() + 20
        while time.monotonic() < give_up_at:
            try:
                self.assertEqual(self.send(self.connect(), b"d"), b"d")
                return
            except OSError:
                time.sleep(0.05)
        self.fail("the link stays cut")

    def test_swallow_holds_bytes_back_and_closes_nothing(self):
        connection = self.connect()
        self.assertEqual(self.send(connection, b"a"), b"a")
        since = time.monotonic()
        self.link.swallow(0.3)
        self.assertEqual(self.send(connection, b"b"), b"b")
        self.assertGreaterEqual(time.monotonic() - since, 0.3)

    def test_swallow_of_a_process_holds_back_what_that_one_sends(self):
        connection = self.connect()
        self.assertEqual(self.send(connection, b"a"), b"a")
        since = time.monotonic()
        self.link.swallow(0.3, of=os.getpid())
        self.assertEqual(self.send(connection, b"b"), b"b")
        self.assertGreaterEqual(time.monotonic() - since, 0.3)
        self.link.swallow(60, of=os.getppid())
        self.assertEqual(self.send(connection, b"c"), b"c")

    def test_stall_holds_open_connections_back_and_no_new_ones(self):
        connection = self.connect()
        self.assertEqual(self.send(connection, b"a"), b"a")
        self.link.stall()
        connection.settimeout(0.2)
        with self.assertRaises(socket.timeout):
            self.send(connection, b"b")
        self.assertEqual(self.send(self.connect(), b"c"), b"c")

    def test_flip_inverts_one_bit_of_a_large_piece_once(self):
        connection = self.connect()
        data = bytes(4096)
        self.link.flip()
        self.assertEqual(self.send(connection, b"small"), b"small")
        self.assertEqual(sum(bin(byte).count("1") for byte in self.send(connection, data)), 1)
        self.assertEqual(self.send(connection, data), data)

    def test_a_large_piece_is_lost_or_repeated_once(self):
        connection = self.connect()
        self.link.lose()
        self.assertEqual(self.send(connection, b"small"), b"small")
        connection.sendall(bytes(4096))
        give_up_at = time.monotonic() + 20
        while self.link.to_spoil and time.monotonic() < give_up_at:
            time.sleep(0.01)
        self.assertEqual(self.send(connection, b"behind"), b"behind")
        self.link.repeat()
        data = bytes(range(256)) * 16
        connection.sendall(data)
        self.assertEqual(self.receive(connection, 2 * len(data)), 2 * data)


if __name__ == "__main__":
    unittest.main()
