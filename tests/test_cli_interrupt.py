"""cli/interrupt.py: Ctrl-C reaches a main thread that runs no Python code."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from fake_engine import FakeContext
from llama_eagle.cli.interrupt import Interrupts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals cannot be sent to oneself on Windows")


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_handlers_are_restored():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_stops_an_answer_without_raising():
    contexts = [FakeContext(), FakeContext()]
    with Interrupts() as interrupts:
        interrupts.leaves = False
        with interrupts.answer(contexts):
            press()
            assert interrupts.stopped
            assert all(context.aborted for context in contexts)
        assert not any(context.aborted for context in contexts)
        with interrupts.answer(contexts):
            assert not interrupts.stopped


def test_raises_elsewhere():
    with Interrupts() as interrupts:
        interrupts.leaves = False
        with pytest.raises(KeyboardInterrupt):
            press()


def test_raises_while_writing():
    with Interrupts() as interrupts:
        interrupts.leaves = False
        with interrupts.answer([FakeContext()]):
            with pytest.raises(KeyboardInterrupt), interrupts.writing():
                press()
            with pytest.raises(KeyboardInterrupt), interrupts.writing():
                pytest.fail("it was stopped already")


def child(code):
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)  # until it is inside the native call
    return process


def test_leaves_in_time_although_native_code_goes_on():
    code = """
import ctypes
from llama_eagle.cli.interrupt import Interrupts
mutex = (ctypes.c_char * 256)()
lock = ctypes.CDLL(None).pthread_mutex_lock  # a signal does not end it
lock(mutex)
with Interrupts():
    print("ready", flush=True)
    lock(mutex)
"""
    process = child(code)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert time.monotonic() - start < 5  # 0.3 on an idle machine
    assert process.communicate() == ("", "")


def test_aborts_from_another_thread_while_native_code_runs():
    code = """
import ctypes
from llama_eagle.cli.interrupt import Interrupts
libc = ctypes.CDLL(None)
mutex = (ctypes.c_char * 256)()
libc.pthread_mutex_lock(mutex)
class Context:
    def abort(self): libc.pthread_mutex_unlock(mutex)
    def resume(self): print("resumed")
with Interrupts() as interrupts:
    interrupts.leaves = False
    with interrupts.answer([Context()]):
        print("ready", flush=True)
        libc.pthread_mutex_lock(mutex)
    print("stopped", interrupts.stopped)
"""
    process = child(code)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == ("resumed\nstopped True\n", "")


def test_a_signal_just_before_a_system_call_is_noticed():
    """The nudge: recv() goes on after a signal without handler, as readline's select() does after an early one."""
    here, there = socket.socketpair()
    with here, there, Interrupts() as interrupts:
        interrupts.leaves = False
        seen = []
        before = signal.signal(signal.SIGURG, lambda number, frame: (seen.append(number), there.send(b"x")))
        writer = os.dup(signal.set_wakeup_fd(-1))  # as if SIGINT had come: its number in the socket
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        os.write(writer, bytes([signal.SIGINT]))
        here.settimeout(10)
        assert here.recv(1) == b"x"
        assert seen
        time.sleep(0.4)
        signal.signal(signal.SIGURG, before)
        signal.set_wakeup_fd(-1)
        os.close(writer)


def test_leaves_other_threads_alone():
    before = signal.getsignal(signal.SIGINT)
    inside = []

    def enter():
        with Interrupts():
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert inside == [before]
