"""A verifier that is not ours accepts our checkpoints and proofs: the Go project's packages for notes and transparency logs.

It is built offline from Debian's golang-go and golang-golang-x-mod-dev; only reading the lines of a proof is written here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest

from audit_logs import KEY, written
from taut.audit.checkpoint import checkpoint_of
from taut.audit.log import open_log
from taut.audit.merkle import consistency
from taut.audit.note import public_key

PACKAGE = Path("/usr/share/gocode/src/golang.org/x/mod")
NEEDS = "needs go and its module golang.org/x/mod (apt-get install golang-go golang-golang-x-mod-dev)"
MODULE = f"""module verifier

go 1.17

require golang.org/x/mod v0.0.0

replace golang.org/x/mod => {PACKAGE}
"""
PROGRAM = """
package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func must(err error) {
	if err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
}

func read(name string) string {
	data, err := os.ReadFile(name)
	must(err)
	return string(data)
}

// The signed size and root of a checkpoint.
func tree(text, vkey string) (int64, tlog.Hash) {
	verifier, err := note.NewVerifier(vkey)
	must(err)
	signed, err := note.Open([]byte(text), note.VerifierList(verifier))
	must(err)
	lines := strings.Split(signed.Text, "\\n")
	size, err := strconv.ParseInt(lines[1], 10, 64)
	must(err)
	root, err := tlog.ParseHash(lines[2])
	must(err)
	return size, root
}

func hashes(lines []string) (path []tlog.Hash) {
	for _, line := range lines {
		hash, err := tlog.ParseHash(line)
		must(err)
		path = append(path, hash)
	}
	return path
}

func main() {
	vkey := os.Args[2]
	switch os.Args[1] {
	case "record": // vkey, proof, record
		head, checkpoint, _ := strings.Cut(read(os.Args[3]), "\\n\\n")
		lines := strings.Split(head, "\\n")[1:]
		if strings.HasPrefix(lines[0], "extra ") {
			_, err := base64.StdEncoding.DecodeString(lines[0][6:])
			must(err)
			lines = lines[1:]
		}
		index, err := strconv.ParseInt(strings.TrimPrefix(lines[0], "index "), 10, 64)
		must(err)
		size, root := tree(checkpoint, vkey)
		must(tlog.CheckRecord(hashes(lines[1:]), size, root, index, tlog.RecordHash([]byte(read(os.Args[4])))))
	case "tree": // vkey, old checkpoint, new checkpoint, path
		oldSize, oldRoot := tree(read(os.Args[3]), vkey)
		size, root := tree(read(os.Args[4]), vkey)
		must(tlog.CheckTree(hashes(strings.Fields(read(os.Args[5]))), size, root, oldSize, oldRoot))
	}
	fmt.Println("accepted")
}
"""


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go program, built."""
    go = shutil.which("go")
    if go is None or not PACKAGE.is_dir():
        pytest.skip(NEEDS)
    folder = tmp_path_factory.mktemp("verifier")
    (folder / "go.mod").write_text(MODULE)
    (folder / "main.go").write_text(PROGRAM)
    offline = {**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOSUMDB": "off", "CGO_ENABLED": "0"}
    build = [go, "build", "-o", "verifier", "."]
    done = subprocess.run(build, cwd=folder, env=offline, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "verifier"


def said(verifier: Path, *words: str | Path) -> str:
    done = subprocess.run([verifier, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (0 if done.stdout == "accepted\n" else 1)
    return done.stdout


@pytest.fixture
def given(tmp_path: Path) -> tuple[str, str, bytes]:
    """(key, proof, record) of a small log."""
    with open_log(written(tmp_path / "audit.db", 12)) as log:
        proof = log.proof(5, KEY)
        return str(public_key(log.origin(), KEY)), str(proof), proof.record


def test_our_proof_is_accepted_and_changed_ones_are_refused(
    verifier: Path, given: tuple[str, str, bytes], tmp_path: Path
) -> None:
    key, proof, record = given
    lines = proof.split("\n")
    first = next(k for k, line in enumerate(lines) if line.startswith("index ")) + 1
    other = b64encode(bytes(32)).decode()
    changed = {
        "nothing": (proof, record),
        "the record": (proof, record.replace(b"analyze", b"analyse")),
        "the index": (proof.replace("index 5", "index 6"), record),
        "the path": ("\n".join([*lines[:first], other, *lines[first + 1 :]]), record),
        "the size": (proof.replace("\n13\n", "\n14\n"), record),
        "the root": ("\n".join([*lines[:-4], other, *lines[-3:]]), record),
        "the signature": (proof[:-8] + "AAAAAA=\n", record),
    }
    answers = {}
    for what, (text, body) in changed.items():
        (tmp_path / "proof.txt").write_text(text)
        (tmp_path / "record").write_bytes(body)
        answers[what] = said(verifier, "record", key, tmp_path / "proof.txt", tmp_path / "record").split(":")[0].strip()
    assert answers == {what: "accepted" if what == "nothing" else "refused" for what in changed}


def test_our_proof_of_consistency_is_accepted_and_changed_ones_are_refused(verifier: Path, tmp_path: Path) -> None:
    with open_log(written(tmp_path / "audit.db", 6, signed=True), "1", create=True) as log:
        (old,) = log.checkpoints()
        for k in range(6):
            log.append("verb", {"k": k})
        new, key = log.sign(KEY), str(public_key(log.origin(), KEY))
        path = consistency([row.leaf for row in log.raw()], checkpoint_of(old).size)
    lines = [b64encode(each).decode() for each in path]
    (tmp_path / "old").write_text(old)
    (tmp_path / "new").write_text(new)
    answers = []
    for shown in (lines, lines[::-1], lines[1:], [*lines, lines[0]]):
        (tmp_path / "path").write_text("\n".join(shown))
        answers.append(said(verifier, "tree", key, tmp_path / "old", tmp_path / "new", tmp_path / "path").split(":")[0].strip())
    assert answers == ["accepted", "refused", "refused", "refused"]
