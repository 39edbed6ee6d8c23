"""The stages of tools/test: each builds or checks something and yields one result for each test.

A cmocka case (a line of TAP) is a test, and so is a program without TAP, a check, its self-test,
and a file under clang-tidy. A stage that ran nothing has failed.

Tests run one stage after the other. What no clock matters to, builds and clang-tidy, runs beside them from
the beginning and gets what they leave of the cores, which is much while they wait for time to pass.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CHECKS = ROOT / "tools/checks"
JOBS = os.cpu_count()
PR_SET_PDEATHSIG = 1
TAIL_LINES = 40
CAUSE_LINES = 4  # around each line that says what failed
SHOWN_FAILURES = 20
WAITING = ("integration", "conformance", "chaos", "waits")
WAITING_JOBS = 4 * JOBS  # such a program uses an eighth of a core

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Result(NamedTuple):
    name: str
    outcome: str
    output: str = ""


def run(command, **more):
    """The finished command, its standard error in its output."""
    return subprocess.run([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", **more)


def in_parallel(function, arguments):
    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(function, arguments))


# --- Commands that are one test ------------------------------------------------------------


def check(name, *arguments):
    result = run([CHECKS / name, *arguments])
    return Result(" ".join(["check", name, *arguments]), FAILED if result.returncode else PASSED, result.stdout)


def build_failures(kind, *arguments):
    """A build that works is not a test; one that does not is a failure."""
    result = run([ROOT / "tools/build", kind, *arguments])
    return [Result(f"build {kind}", FAILED, result.stdout)] if result.returncode else []


# --- Tests that Meson runs -----------------------------------------------------------------

TAP_CASE = re.compile(r"^(ok|not ok)\b\s*(\d*)\s*-?\s*([^#]*?)\s*(?:#\s*(skip\S*|todo)\b\s*(.*))?$", re.I)
TAP_PLAN = re.compile(r"^1\.\.(\d+)")


def results_of(entry):
    """The results in one line of Meson's testlog.json, which is about one program."""
    name = entry["name"].partition(":")[2] or entry["name"]
    output = (entry.get("stdout") or "") + (entry.get("stderr") or "")
    results, planned = [], None
    for line in (entry.get("stdout") or "").splitlines():
        plan, case = TAP_PLAN.match(line), TAP_CASE.match(line)
        if plan:
            planned = (planned or 0) + int(plan[1])
        elif case:
            ok, number, title, directive, rest = case.groups()
            if directive and directive.lower().startswith("skip"):
                outcome = SKIPPED  # cmocka 1.1.5 prints "not ok N # SKIP name"
            else:
                outcome = PASSED if ok == "ok" else FAILED
            results.append(Result(f"{name}: {title or rest or number}", outcome, output))

    verdict, status = entry["result"], entry.get("returncode")
    if planned is None:  # no TAP: the program is the test
        outcome = {"OK": PASSED, "EXPECTEDFAIL": PASSED}.get(verdict, FAILED)
        if verdict == "SKIP" and status == 77:
            outcome = SKIPPED
        return [Result(name, outcome, f"{output}\n({verdict}, exit status {status})")]
    failed = any(result.outcome == FAILED for result in results)
    if planned == 0 and verdict == "SKIP":
        return [Result(name, SKIPPED, output)]
    if len(results) < planned:
        results.append(Result(f"{name}: ran {len(results)} of {planned} cases ({verdict}, exit status {status})",
                              FAILED, output))
    elif not failed and (verdict in ("TIMEOUT", "ERROR", "INTERRUPT") or status != 0):
        results.append(Result(f"{name}: {verdict}, exit status {status}", FAILED, output))
    return results


def all_tests(directory, *arguments):
    """First what keeps the cores busy, then what waits for processes and time: more of that at once."""
    busy = [word for suite in WAITING for word in ("--no-suite", suite)]
    waiting = [word for suite in WAITING for word in ("--suite", suite)]
    return (meson_tests(directory, *busy, *arguments)
            + meson_tests(directory, *waiting, *arguments, jobs=WAITING_JOBS))


def meson_tests(directory, *arguments, rebuild=False, jobs=JOBS):
    """The results of `meson test` with these arguments; none at all is a failure."""
    logs = ROOT / directory / "meson-logs"
    for old in logs.glob("stages*"):
        old.unlink()
    result = run(["meson", "test", "-C", directory, "--num-processes", jobs, "--logbase", "stages",
                  *([] if rebuild else ["--no-rebuild"]), *arguments])
    lines = [line for log in logs.glob("stages*.json")
             for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    results = [found for line in lines for found in results_of(json.loads(line))]
    if not results:
        return [Result(f"meson test {' '.join(map(str, arguments))}: ran no tests", FAILED, result.stdout)]
    return results


# --- Stages --------------------------------------------------------------------------------


def checks(quick):
    results = in_parallel(check, ["layers", "lengths", "words", "format"])
    return results + in_parallel(lambda name: check(name, "--self-test"),
                                 ["layers", "lengths", "words", "format", "headers", "purity"])


def gcc(quick):
    return build_failures("gcc") or (
        in_parallel(check, ["headers", "purity", "deploy"]) + [check("deploy", "--self-test")]
        + all_tests("build", *(["--no-suite", "slow"] if quick else [])))


def build_asan():
    return build_failures("asan")


def asan(quick, failures):
    return failures or all_tests("build-asan", "--no-suite", "slow", "--timeout-multiplier", 4)


def build_tsan():
    failures = build_failures("tsan", "build.ninja")
    if failures:
        return failures
    tests = json.loads(run(["meson", "introspect", "--tests", "build-tsan"]).stdout)
    programs = {os.path.relpath(test["cmd"][0], ROOT / "build-tsan")
                for test in tests if any(suite.endswith(":threads") for suite in test["suite"])}
    return build_failures("tsan", *sorted(programs))


def tsan(quick, failures):
    return failures or meson_tests("build-tsan", "--suite", "threads", "--timeout-multiplier", 6)


def valgrind(quick):
    # Processes that guard each other by the clock cannot do so at a thirtieth of their speed.
    return build_failures("gcc") or meson_tests("build", "--setup", "valgrind", "--suite", "unit",
                                                "--no-suite", "slow", "--no-suite", "processes")


def run_tidy():
    failures = build_failures("asan")  # for clang's own command lines and the generated headers
    if failures:
        return failures
    commands = json.loads((ROOT / "build-asan/compile_commands.json").read_text())
    paths = sorted({(Path(command["directory"]) / command["file"]).resolve() for command in commands})
    ours = [path.relative_to(ROOT) for path in paths
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ("src", "api", "controllers")]

    def one(path):
        result = run(["clang-tidy", "-p", "build-asan", "--quiet", path])
        errors = re.findall(r"^.* error: .*\n.*\n", result.stdout, re.M)  # not the paths that lead there
        return Result(f"clang-tidy {path}", FAILED if result.returncode else PASSED, "".join(errors) or result.stdout)

    return in_parallel(one, ours)


def tidy(quick, results):
    return results


STAGES = {
    "checks": ("checks of the source, and a planted violation for each", checks),
    "gcc": ("build with gcc, all tests", gcc),
    "asan": ("build with clang, AddressSanitizer and UndefinedBehaviorSanitizer, all tests", asan),
    "tsan": ("ThreadSanitizer, tests of suite threads", tsan),
    "valgrind": ("memcheck, tests of suite unit", valgrind),
    "tidy": ("clang-tidy", tidy),
}
NOT_QUICK = ("tsan", "valgrind", "tidy")

# What runs beside the stages before it, one after the other; its results go to its stage.
BESIDE = {"asan": build_asan, "tidy": run_tidy, "tsan": build_tsan}


def step_aside():
    """This process and its children get what others leave of the cores."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # it ends with the stages
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:  # where the kernel shares the cores among sessions first
        Path("/proc/self/autogroup").write_text("19")
    except OSError:
        pass


class Beside:
    """The work of BESIDE for these stages; the first of them does its own, as nothing is before it."""

    def __init__(self, names):
        self.pool = ProcessPoolExecutor(1, initializer=step_aside)
        self.results = {name: self.pool.submit(work) for name, work in BESIDE.items() if name in names[1:]}

    def of(self, name):
        """What the stage is given besides --quick."""
        if name not in BESIDE:
            return []
        return [self.results[name].result() if name in self.results else BESIDE[name]()]

    @staticmethod
    def end():
        for worker in multiprocessing.active_children():
            os.killpg(worker.pid, signal.SIGTERM)


def worth_showing(lines):
    """The numbers of the lines that say what failed, with those around them, and of the last ones."""
    causes = [i for i, line in enumerate(lines) if re.match(r"not ok\b|ERROR: ", line)]
    near = {j for i in causes for j in range(i - CAUSE_LINES, i + CAUSE_LINES + 1) if 0 <= j < len(lines)}
    return sorted(near)[:TAIL_LINES] + [i for i in range(max(len(lines) - TAIL_LINES, 0), len(lines)) if i not in near]


def show(failures):
    for failure in failures[:SHOWN_FAILURES]:
        lines = failure.output.rstrip().splitlines()
        print(f"  FAILED {failure.name}")
        last = -1
        for i in worth_showing(lines):
            if i != last + 1:
                print("    ...")
            print(f"    {lines[i]}")
            last = i
    for failure in failures[SHOWN_FAILURES:]:
        print(f"  FAILED {failure.name}")


def main():
    parser = argparse.ArgumentParser(prog="tools/test")
    parser.add_argument("--quick", action="store_true", help=f"without {', '.join(NOT_QUICK)} and the suite slow")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(STAGES))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.stages if name not in STAGES]
    if unknown:
        parser.error(f"unknown stage {unknown[0]}; stages are {', '.join(STAGES)}")
    names = arguments.stages or [name for name in STAGES if not (arguments.quick and name in NOT_QUICK)]

    os.environ["LEASEHOLD_WERROR"] = "1"
    everything = []
    begin = time.monotonic()
    beside = Beside(names)
    for name in names:
        headline, stage = STAGES[name]
        print(f"== {name}: {headline}", flush=True)
        started = time.monotonic()
        results = stage(arguments.quick, *beside.of(name))
        if not any(result.outcome != SKIPPED for result in results):
            results.append(Result(f"stage {name}", FAILED, "it ran no tests"))
        everything += results
        show([result for result in results if result.outcome == FAILED])
        print(f"   {summary(results)} in {time.monotonic() - started:.0f} s", flush=True)

    failures = [result.name for result in everything if result.outcome == FAILED]
    print(f"\n{len(names)} stages in {time.monotonic() - begin:.0f} s")
    for failure in failures:
        print(f"FAILED {failure}")
    print(summary(everything), flush=True)
    sys.exit(1 if failures else 0)


def summary(results):
    count = {outcome: sum(result.outcome == outcome for result in results) for outcome in (PASSED, FAILED, SKIPPED)}
    skipped = f", {count[SKIPPED]} skipped" if count[SKIPPED] else ""
    return f"{count[PASSED]} passed, {count[FAILED]} failed{skipped}"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        Beside.end()
        sys.exit(130)
