"""Many small files in an S3 store: how long listing and reading them takes, beside the same files on disk.

    python bench/remote_files.py --files 10000      (needs s3fs and moto[server])

The store (moto) runs in this machine too and answers one request at a time: what it costs is in the wall clock, not in the CPU.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from stores import step_times

READ = "import sys, taut; t = taut.read(sys.argv[1]); print(len(set(t.ops.rank.tolist())))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    count = parser.parse_args().files
    import s3fs
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each of 30,000 requests
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    store = s3fs.S3FileSystem()
    store.mkdir("bucket")
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(count):
            (Path(folder) / f"worker{rank}.csv").write_bytes(step_times(rank))
        store.put(folder + "/", "bucket/job", recursive=True)
        print(f"{count:,} files, load {os.getloadavg()[0]:.1f}")
        for name, where in (("disk", folder), ("S3", "s3://bucket/job/*.csv")):
            told(name, where)
    server.stop()


def told(name: str, where: str) -> None:
    """Read them in a process of its own, and print what that took."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", READ, where], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    took, ranks = time.perf_counter() - began, done.stdout.strip()
    print(f"{name}: {took:.1f} s, {cpu:.1f} s CPU, {after.ru_maxrss >> 10} MiB, {ranks} ranks")


if __name__ == "__main__":
    main()
