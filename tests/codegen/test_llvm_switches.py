"""LLVM's switches are ours while we emit, and LLVM's own for anybody else who uses llvmlite in the process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from tests.codegen.running import HOST
from weft.codegen import llvm

# Loops, calls, branches, a product of addresses, a constant to hoist, a function that is not optimised.
TEXT = """
declare double @llvm.sqrt.f64(double)
declare void @told(ptr, i64)
define i64 @count(ptr %p, ptr %q, i64 %n) {
entry:
  %stack = alloca [16 x i64]
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %join]
  %sum = phi i64 [0, %entry], [%total, %join]
  %a = getelementptr inbounds i64, ptr %p, i64 %i
  %b = getelementptr inbounds i64, ptr %q, i64 %i
  %x = load i64, ptr %a
  %y = load i64, ptr %b
  %low = icmp slt i64 %x, %y
  br i1 %low, label %one, label %two
one:
  %m = mul i64 %x, 77
  store i64 %m, ptr %b
  br label %join
two:
  call void @told(ptr %stack, i64 %y)
  %k = sdiv i64 %y, 10
  br label %join
join:
  %v = phi i64 [%m, %one], [%k, %two]
  %total = add i64 %sum, %v
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret i64 %total
}
define double @scaled(ptr %p, i64 %n, double %s) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %t = phi double [0.0, %entry], [%u, %loop]
  %j = mul i64 %i, 3
  %a = getelementptr inbounds double, ptr %p, i64 %j
  %x = load double, ptr %a
  %r = call double @llvm.sqrt.f64(double %x)
  %w = fmul double %r, %s
  %z = fadd double %w, 12345.5
  %c = fcmp olt double %z, 1.0
  %h = select i1 %c, double 0.5, double %z
  %u = fadd double %t, %h
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret double %u
}
define i32 @plain(i32 %x) noinline optnone {
  %y = add i32 %x, 7
  ret i32 %y
}
"""

OTHER = f"""
import hashlib, os, threading
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
TEXT = {TEXT!r}
def code():
    machines = [llvm.Target.from_default_triple().create_target_machine(opt=level) for level in range(4)]
    return hashlib.sha256(b"".join([m.emit_object(llvm.parse_assembly(TEXT)) for m in machines])).hexdigest()
"""

BESIDE = """
import weft, weft.numpy as wnp
kept = set()
for n in range(3):
    weft.jit(lambda x: wnp.sin(x) * n)(wnp.ones(9)).block_until_ready()
    kept.add(code())
print(*kept)
"""

TOGETHER = """
from weft._base import target
from weft.codegen import llvm as ours
HOST, over, mine = target.host(), [], []
first = code()
def other():
    while not over:
        assert code() == first
def own():
    mine.extend(ours.emit_object(TEXT, HOST, "k") for _ in range(20))
others, owns = ([threading.Thread(target=work) for _ in range(2)] for work in (other, own))
for thread in others + owns: thread.start()
for n in range(3):
    child = os.fork()
    if not child:
        os._exit(0 if ours.emit_object(TEXT, HOST, "k") == ours.emit_object(TEXT, HOST, "k") else 3)
    assert os.waitpid(child, 0)[1] == 0
for thread in owns: thread.join()
over.append(1)
for thread in others: thread.join()
print(len(set(mine)), hashlib.sha256(mine[0]).hexdigest())
"""

IN_A_VISIT = """
from weft import runtime
from weft._base import target
from weft.codegen import llvm as ours
HOST, first = target.host(), code()
def told():  # in the middle of a visit, as a signal's handler may be
    global within
    llvm.ffi.unregister_lock_callback(told, int)
    within = ours.emit_object(TEXT, HOST, "k")
alone = ours.emit_object(TEXT, HOST, "k")
llvm.ffi.register_lock_callback(told, int)
print(code() == first, within == alone, code() == first)
"""


def run(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OTHER + program],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "WEFT_CACHE": "off"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_another_user_keeps_its_own_code() -> None:
    (alone,) = run("print(code())")
    assert run(BESIDE) == [alone]  # weft first
    assert run("print(code())\n" + BESIDE) == [alone, alone]


def test_the_switches_change_what_another_user_would_get() -> None:
    """Otherwise the test above shows nothing."""
    switches = "".join(f"llvm.set_option('t', '-{name}={our}')\n" for name, (our, _) in llvm.SWITCHES.items())
    assert run(switches + "print(code())") != run("print(code())")
    put_back = "".join(f"llvm.set_option('t', '-{name}={own}')\n" for name, (_, own) in llvm.SWITCHES.items())
    assert run(switches + put_back + "print(code())") == run("print(code())") == run(put_back + "print(code())")


def test_our_code_is_the_same_beside_another_user() -> None:
    expected = hashlib.sha256(llvm.emit_object(TEXT, HOST, "k")).hexdigest()
    assert run(TOGETHER) == ["1", expected]


def test_we_emit_in_the_middle_of_a_visit_of_the_same_thread() -> None:
    assert run(IN_A_VISIT) == ["True", "True", "True"]
