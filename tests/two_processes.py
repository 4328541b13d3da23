"""Start two processes that talk to each other, for the tests of parallel training."""

import os
import signal
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import torch

CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)


def spawn(function, *arguments):
    """Call ``function(rank, port, *arguments)`` in two new processes, with a port for them to meet at, and wait.

    Spawned, not forked: threads of libraries that earlier tests loaded may hold locks that a fork would never see
    released. ``function`` leaves its process group standing: see ``_call``.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(_call, (function, port, *arguments), nprocs=2)


def _call(rank, function, *arguments):
    """Call, then end the process without taking anything down.

    torch 2.13 destroys a gloo group with Python's lock held while it waits for a thread that may still want that lock
    to let go of the last message, and hangs if it does.
    """
    torch.set_num_threads(1)
    function(rank, *arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def launch(*words, timeout=180):
    """Run a module or script in two processes under torchrun; show what they printed where they fail."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *words]
    paths = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths}

    def run():
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)

    done = run()
    if any(f"Signal {int(one)} ({one.name})" in done.stderr for one in CRASHES):
        warnings.warn(f"{words} was started again:\n{done.stderr[:4000]}", stacklevel=2)
        done = run()
    # The processes print before torchrun does, so what went wrong stands first.
    assert done.returncode == 0, f"{done.stderr[:4000]}\n...\n{done.stderr[-1500:]}"
