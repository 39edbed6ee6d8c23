"""What the checks share: listing files, reporting, and the self-test.

A check is a function `check(root, build)` that returns (number of things looked at, findings),
each finding a line that begins with the path at fault. Looking at nothing is a finding too.
`--self-test` copies the tree, plants violations one by one, and demands that each is refused.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def files(root, *patterns):
    """Paths relative to root that git tracks or would offer to add; all of a tree without git."""
    root = Path(root)
    if (root / ".git").exists():
        out = subprocess.run(["git", "-C", root, "ls-files", "-zco", "--exclude-standard"],
                             check=True, capture_output=True).stdout
        found = [Path(os.fsdecode(name)) for name in out.split(b"\0") if name]
    else:
        found = [path.relative_to(root) for path in root.rglob("*")]
    return sorted(path for path in found if (root / path).is_file()
                  and (not patterns or any(path.match(pattern) for pattern in patterns)))


def text(path):
    return Path(path).read_text(encoding="utf-8", errors="replace")


def main(name, check, plants=None, good=None, self_test=None):
    """Runs `check`, or its self-test: `plants` is a list of (path, content, words expected in the
    finding), `good` maps paths to contents that must pass; or `self_test` is a function of its own that
    returns how many it planted, and the problems."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        if self_test:
            count, problems = self_test()
        else:
            count, problems = len(plants), try_plants(args.build, plants, good or {})
        unit = "planted violations"
        if count == 0:
            problems = [*problems, f"{name}: planted nothing"]
    else:
        count, problems = check(args.root.resolve(), args.build.resolve())
        unit = "examined"
        if count == 0:
            problems = [*problems, f"{name}: looked at nothing"]
    for problem in problems:
        print(problem)
    print(f"{name}: {count} {unit}, {len(problems)} problems")
    sys.exit(1 if problems else 0)


def try_plants(build, plants, good):
    """Problems of the check itself: a planted violation that passes, or a good file that does not."""
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        for path in files(ROOT):
            target = Path(scratch, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, target)

        def write(path, content):
            Path(scratch, path).parent.mkdir(parents=True, exist_ok=True)
            Path(scratch, path).write_text(content, encoding="utf-8")

        def run():
            return subprocess.run([sys.argv[0], "--root", scratch, "--build", build],
                                  capture_output=True, text=True)

        for path, content in good.items():
            write(path, content)
        for path, content, expected in plants:
            write(path, content)
            result = run()
            lines = [line for line in result.stdout.splitlines() if line.startswith(path)]
            if result.returncode == 0 or not any(expected in line for line in lines):
                problems.append(f"{path}: planted violation not refused ({expected})\n{result.stdout}"
                                f"{result.stderr}")
            problems += [f"{line}: this is good, but refused"
                         for line in result.stdout.splitlines() if line.startswith(tuple(good))]
            Path(scratch, path).unlink()
    return problems
