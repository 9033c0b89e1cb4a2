"""The examples of the documents and the programs among them run."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import taskdiag
from conftest import IS_ROOT, until

CLIENT = Path(__file__).parents[1]
DOCUMENTS = CLIENT.parents[1] / "docs"


@pytest.mark.parametrize("name", ["python.md", "python-psutil.md"])
def test_documents(name: str) -> None:
    result = doctest.testfile(str(DOCUMENTS / name), module_relative=False)
    assert result.failed == 0 and result.attempted >= 2


def test_the_first_five_lines() -> None:
    """The first example of the page and that of the README are the same, and run."""
    first = [(path.read_text().split("```python\n", 1)[1]).split("```", 1)[0]
             for path in (DOCUMENTS / "python.md", CLIENT / "README.md")]  # fmt: skip
    assert first[0] == first[1] and len(first[0].splitlines()) == 5
    run = subprocess.run([sys.executable, "-c", first[0]], capture_output=True, text=True, check=True)
    assert "pss_bytes" in run.stdout


def test_names_of_the_page_about_psutil_are_fields() -> None:
    """What stands for psutil's attributes exists."""
    rows = (DOCUMENTS / "python-psutil.md").read_text().split("|---|---|\n", 1)[1].split("\n\n", 1)[0]
    words = {word.strip("`") for line in rows.splitlines() for word in line.split("|")[2].split() if "_" in word}
    names = {word.strip("`,;.") for word in words if "(" not in word and "=" not in word and '"' not in word}
    assert len(names) > 20
    assert names - set(taskdiag.FIELDS) <= {"signal.pidfd_send_signal"}, names - set(taskdiag.FIELDS)


@pytest.mark.parametrize("name", ["biggest.py", "sql.py"])
def test_programs(name: str) -> None:
    run = subprocess.run([sys.executable, CLIENT / "examples" / name], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stderr) == (0, "") and "pid" in run.stdout


@pytest.mark.skipif(not IS_ROOT, reason="events take root")
def test_waiting_for_an_exec() -> None:
    program = [sys.executable, str(CLIENT / "examples/wait_for_exec.py"), "nproc"]
    waiting = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)

    def found() -> bool:
        subprocess.run(["nproc"], stdout=subprocess.DEVNULL, check=True)
        try:
            return waiting.wait(0.1) == 0
        except subprocess.TimeoutExpired:
            return False

    until(found, "it ends")
    output, _ = waiting.communicate()
    assert "started by" in output and "/nproc" in output


def test_all_that_is_public_has_a_docstring() -> None:
    for name in taskdiag.__all__:
        public = getattr(taskdiag, name)
        if name in ("FIELDS", "GROUPS"):
            continue
        assert public.__doc__, name
        if isinstance(public, type) and not issubclass(public, Exception):
            for attribute, value in vars(public).items():
                assert attribute.startswith("_") or value.__doc__, f"{name}.{attribute}"


def test_licences_are_in_the_wheel() -> None:
    """What is compiled into the module has places in the sources of crates: those have a licence."""
    files = {file.name: file.locate() for file in metadata.files("taskdiag") or ()}
    module = Path(str(files["_taskdiag.abi3.so"])).read_bytes()
    compiled = set(re.findall(rb"/registry/src/[^/\x00]+/([\w-]+)-(\d+\.\d+\.\d+[\w.+-]*)/", module))
    assert {b"pyo3", b"rustix", b"arrow-data"} <= {name for name, _ in compiled}
    text = Path(str(files["LICENSE-CRATES"])).read_bytes()
    assert {f"{name.decode()} {version.decode()}" for name, version in compiled} <= {
        " ".join(line.split(" ")[:2]) for line in text.decode().splitlines() if "(" in line
    }
    for name in ("LICENSE-MIT", "LICENSE-APACHE", "LICENSE-BSD-2-CLAUSE", "LICENSE-GPL-2.0"):
        assert len(Path(str(files[name])).read_text()) > 1000, name
    said = metadata.metadata("taskdiag")["License-Expression"]
    assert said == "(Apache-2.0 OR MIT) AND (GPL-2.0-only OR BSD-2-Clause)"
